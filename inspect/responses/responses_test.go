package responses

import (
	"testing"

	"callgate/inspect/inspecttest"
)

func TestCases(t *testing.T) {
	inspecttest.Run(t, Dialect{}, "testdata/*.txtar")
}
