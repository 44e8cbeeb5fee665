// Package doctest finds the command lines in the documentation, so that the commands test that they have such
// commands and flags. It parses no flags: values are examples.
package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/internal/golden"
)

// A line is a command line without the program's name.
type line struct {
	file  string
	words []string
}

var (
	code    = regexp.MustCompile("(?s)```(.*?)```|`([^`\n]+)`")
	comment = regexp.MustCompile(`\s#.*$`)
	word    = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	flag    = regexp.MustCompile(`^--([A-Za-z][\w-]*)`)
)

// lines are the command lines of a program in README.md and docs: those in blocks of code, and those between backticks.
func lines(t *testing.T, program string) (list []line) {
	t.Helper()
	root := golden.Module(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`^(?:.*\| )?(?:[A-Z_]+=\S* )*(?:go run \./cmd/|\S*/)?` + program + `(?:-cuda)? (.*)$`)
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range code.FindAllStringSubmatch(string(text), -1) {
			for l := range strings.Lines(strings.ReplaceAll(span[1]+span[2], "\\\n", " ")) {
				if m := call.FindStringSubmatch(strings.TrimSpace(comment.ReplaceAllString(l, ""))); m != nil {
					list = append(list, line{filepath.Base(page), word.FindAllString(m[1], -1)})
				}
			}
		}
	}
	return list
}

// CheckDocumentation fails if the documentation has a command line of program that names a command or a flag that app
// does not have, or fewer than least lines. A line without a command is of the command other. Flags of more belong to
// each command of its key.
func CheckDocumentation(t *testing.T, app *kong.Application, program, other string, more map[string]string, least int) {
	t.Helper()
	found := lines(t, program)
	if len(found) < least {
		t.Errorf("the documentation has %d command lines of %s, want %d or more", len(found), program, least)
	}
	for _, l := range found {
		command := node(app, other)
		if len(l.words) > 0 {
			if named := node(app, strings.Trim(l.words[0], "[]")); named != nil {
				command = named
			}
		}
		if command == nil {
			t.Errorf("%s: %s %s: there is no such command", l.file, program, strings.Join(l.words, " "))
			continue
		}
		known := slices.Concat(app.Flags, command.Flags)
		if of := more[command.Name]; of != "" {
			known = append(known, node(app, of).Flags...)
		}
		for _, w := range l.words {
			if m := flag.FindStringSubmatch(strings.Trim(w, "[]")); m != nil && !has(known, strings.ReplaceAll(m[1], "_", "-")) {
				t.Errorf("%s: %s %s has no flag --%s", l.file, program, command.Name, m[1])
			}
		}
	}
}

// node is the command of a name, nil if there is none.
func node(app *kong.Application, name string) *kong.Node {
	for _, c := range app.Children {
		if c.Name == name || slices.Contains(c.Aliases, name) {
			return c
		}
	}
	return nil
}

func has(flags []*kong.Flag, name string) bool {
	return slices.ContainsFunc(flags, func(f *kong.Flag) bool {
		return f.Name == name || slices.Contains(f.Aliases, name) || f.Tag.Negatable != "" && "no-"+f.Name == name
	})
}
