package openaichat

import (
	"testing"

	"callgate/inspect/inspecttest"
)

const cases = "testdata/*.txtar"

func TestCases(t *testing.T) { inspecttest.Run(t, Dialect{}, cases) }
