package toolcall

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/golden"
)

// learned is the family that a template teaches, without the table; nil if it teaches none.
func learned(t *testing.T, source string) *Family {
	t.Helper()
	template, err := chat.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	if r := learn(template, nil); r.spec != nil {
		return newFamily(r.spec, "")
	}
	return nil
}

// readBack reads all that a template writes, without the table of families. It tells whether
// the template writes calls, and the texts that are read differently than meant.
func readBack(t *testing.T, source string) (writes bool, n int, problems []string) {
	t.Helper()
	family := learned(t, source)
	reader := family
	if reader == nil {
		reader = Detect("")
	}
	for _, a := range answersOf(t, source, reader) {
		if len(a.calls) > 0 && strings.Contains(a.text, a.calls[0].Name) {
			writes = true
		}
		n++
		if err := differs(reader, a.shape, a.prompt, a.text, reader.Parse(a.text, Options{Prompt: a.prompt, Tools: a.tools})); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v, of %q", a, err, a.text))
		}
	}
	if family == nil {
		problems = append(problems, "no notation is learned")
	}
	return writes, n, problems
}

// TestGoldenLearnedNotations: without the table of families, the notations that are learned
// from at least 90 % of the real templates that write calls read back all that these write.
func TestGoldenLearnedNotations(t *testing.T) {
	writing, read := 0, 0
	for _, file := range golden.Glob(t, "text/templates/files/*.jinja") {
		data, err := golden.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		writes, n, problems := readBack(t, string(data))
		if !writes {
			continue
		}
		writing++
		if len(problems) == 0 {
			read++
			continue
		}
		t.Logf("%s: %d of %d answers are read otherwise:\n%s", filepath.Base(file), len(problems), n, strings.Join(problems, "\n"))
	}
	t.Logf("%d of %d templates that write calls are read back", read, writing)
	if missed := writing - read; missed > writing/10 {
		t.Errorf("%d of %d templates that write calls are read back, want 90 %%", read, writing)
	}
	golden.Count(t, "text/templates (learned notations)", writing)
}

// TestLearnedNotations is the same with templates of our own, all of which must be read back.
func TestLearnedNotations(t *testing.T) {
	for _, pattern := range []string{"testdata/templates/*.jinja", "testdata/unseen/*.jinja"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no templates: %v", err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".jinja"), func(t *testing.T) {
				writes, n, problems := readBack(t, string(data))
				if !writes || len(problems) > 0 {
					t.Errorf("writes calls: %v; %d of %d answers are read otherwise:\n%s", writes, len(problems), n, strings.Join(problems, "\n"))
				}
				if family := learned(t, string(data)); family != nil {
					roundTrips(t, string(data), family)
				}
			})
		}
	}
}
