package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fence finds the code blocks of a page that begin with #!.
var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(#!.*?)^```$")

// The examples of docs/hooks.md are run as they stand there.
func TestTheHooksOfTheDocumentationWork(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "hooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]int{
		"python": {
			"rm -rf ~/photos/thumbnails": exitOK,
			"rm -rf ~/photos/originals":  exitDeny,
			"git push --force":           exitAsk,
			"chmod -R 777 ~/photos":      exitDeny,
			"rm -rf ~":                   exitDeny,
		},
		"sh": {
			"rm -rf ~/photos/originals": exitDeny,
			"git push --force":          exitAsk,
			"ls originals":              exitOK,
		},
	}
	for _, block := range fence.FindAllStringSubmatch(string(page), -1) {
		lang, script := block[1], block[2]
		t.Run(lang, func(t *testing.T) {
			if lang == "python" {
				if _, err := exec.LookPath("python3"); err != nil {
					t.Skip("python3 is not installed")
				}
			}
			dir := t.TempDir()
			hook := filepath.Join(dir, "hook")
			if err := os.WriteFile(hook, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			settings := filepath.Join(dir, "callgate.yaml")
			if err := os.WriteFile(settings, []byte("approvals:\n  mode: custom\n  hook: "+hook+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cases, ok := want[lang]
			if !ok {
				t.Fatalf("there is no test for the example in %s", lang)
			}
			delete(want, lang)
			for command, code := range cases {
				e, stdout, stderr := testEnv("HOME=/home/dev", "PATH="+os.Getenv("PATH"))
				if got := run(context.Background(), e, []string{"check", "--decide", "--config", settings, command}); got != code {
					t.Errorf("%s: exit code %d, want %d\n%s%s", command, got, code, stdout, stderr)
				}
			}
		})
	}
	for lang := range want {
		t.Errorf("the page has no example in %s", lang)
	}
}

// What the documentation points to is there.
func TestTheDocumentationPointsToWhatExists(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	root := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s points to %s: %v", page, m[1], err)
			}
		}
		for _, line := range strings.Split(string(text), "\n") {
			if n := len([]rune(line)); n > 130 && !strings.HasPrefix(line, "|") {
				t.Errorf("%s: a line of %d characters: %s", page, n, line)
			}
		}
	}
}
