package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the import path of the tree.
const module = "callgate"

// mayImport is the structure of the tree: what each package may import of
// ours, in its code and (behind the bar) in its tests alone. A package without
// a row fails, so that a new one is placed on purpose.
var mayImport = map[string]struct{ code, test string }{
	"inspect/toolcall":   {"", ""},
	"inspect/frame":      {"", ""},
	"inspect/strictjson": {"", ""},
	"inspect/rawjson":    {"inspect/strictjson", ""},
	// What tools mean: data over calls.
	"inspect/catalog": {"inspect/toolcall", "inspect/strictjson"},
	// Wire formats, no policy.
	"inspect/digest":      {"inspect/strictjson", ""},
	"inspect":             {"inspect/digest inspect/toolcall", ""},
	"inspect/openaichat":  {"inspect inspect/digest inspect/frame inspect/rawjson inspect/strictjson inspect/toolcall", "inspect/inspecttest"},
	"inspect/anthropic":   {"inspect inspect/digest inspect/frame inspect/rawjson inspect/strictjson inspect/toolcall", "inspect/inspecttest"},
	"inspect/gemini":      {"inspect inspect/digest inspect/frame inspect/rawjson inspect/strictjson inspect/toolcall", "inspect/inspecttest"},
	"inspect/ollama":      {"inspect inspect/digest inspect/frame inspect/rawjson inspect/strictjson inspect/toolcall", "inspect/inspecttest"},
	"inspect/responses":   {"inspect inspect/digest inspect/frame inspect/rawjson inspect/strictjson inspect/toolcall", "inspect/inspecttest"},
	"inspect/inspecttest": {"inspect inspect/toolcall", ""},
	// Policy, no wire formats. A reviewer knows the gate and not its siblings.
	"gate":         {"inspect/toolcall inspect/strictjson", ""},
	"gate/detect":  {"gate inspect/toolcall", ""},
	"gate/hook":    {"gate inspect/toolcall inspect/strictjson", ""},
	"gate/person":  {"gate inspect/toolcall", ""},
	"gate/redact":  {"", ""},
	"gate/store":   {"gate inspect/toolcall", ""},
	"gate/console": {"gate inspect/strictjson", ""},
	// Transport: the one place where the two meet.
	"proxy":              {"inspect gate inspect/digest inspect/toolcall proxy/egress proxy/repair proxy/telemetry", "inspect/anthropic inspect/openaichat inspect/catalog gate/detect"},
	"proxy/egress":       {"", ""},
	"proxy/mitm":         {"", ""},
	"proxy/forward":      {"proxy/egress proxy/mitm", "*"},
	"proxy/telemetry":    {"gate", "inspect/toolcall"},
	"proxy/repair":       {"inspect inspect/digest", "gate/store"},
	"proxy/providertest": {"", ""},
	"proxy/clienttest":   {"", "*"},
	"proxy/conversation": {"", "*"},
	"config":             {"", ""},
	// The command joins everything.
	"cmd/callgate": {"*", "*"},
}

// mayStartGoroutines are the packages with a go statement in their code; all
// others only compute.
var mayStartGoroutines = []string{"gate", "gate/hook", "gate/store", "gate/console", "proxy", "proxy/forward", "proxy/providertest", "cmd/callgate"}

func TestTheTreeKeepsItsLayers(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := map[string]bool{}
	comments := map[string]int{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == "testdata" || name == "node_modules" || (strings.HasPrefix(name, ".") && name != "." && name != "..") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(rel)
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
		if err != nil {
			return err
		}
		row, ok := mayImport[pkg]
		if !ok {
			t.Errorf("%s: package %s has no row in the table", path, pkg)
			return nil
		}
		seen[pkg] = true
		test := strings.HasSuffix(name, "_test.go")
		if !test && file.Doc != nil {
			comments[pkg]++
		}
		checkImports(t, path, pkg, file, row.code, row.test, test)
		if !test && !slices.Contains(mayStartGoroutines, pkg) {
			ast.Inspect(file, func(n ast.Node) bool {
				if _, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s: package %s starts a goroutine; it should only compute", path, pkg)
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range mayImport {
		switch {
		case !seen[pkg]:
			t.Errorf("the table has a row for %s, which does not exist", pkg)
		case comments[pkg] != 1:
			t.Errorf("package %s has %d package comments, want one", pkg, comments[pkg])
		}
	}
}

func checkImports(t *testing.T, path, pkg string, file *ast.File, code, testOnly string, test bool) {
	t.Helper()
	if code == "*" || test && testOnly == "*" {
		return
	}
	allowed := strings.Fields(code)
	if test {
		allowed = append(allowed, strings.Fields(testOnly)...)
		allowed = append(allowed, pkg)
	}
	for _, spec := range file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		ours, ok := strings.CutPrefix(p, module+"/")
		if ok && !slices.Contains(allowed, ours) {
			t.Errorf("%s: package %s imports %s, which its row does not allow", path, pkg, ours)
		}
	}
}
