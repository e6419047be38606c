package ollama

import (
	"testing"

	"callgate/inspect"
	"callgate/inspect/inspecttest"
)

const (
	cases       = "testdata/*.txtar"
	repairCases = "testdata/repair/*.txtar"
)

var repairing = Dialect{Denial: inspect.DenialRepair}

func TestCases(t *testing.T) { inspecttest.Run(t, Dialect{}, cases) }

// What /api/generate goes on with are tokens, so that nothing can be mended there.
func TestGenerateShowsRefusalsWhateverTheDenial(t *testing.T) {
	inspecttest.Run(t, repairing, "testdata/generate-*.txtar")
}
