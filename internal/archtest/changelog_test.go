package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// TestChangelogSaysThingsOnce: CHANGELOG.md is merged by union, so an entry that two branches have, or that one of
// them has edited, may be there twice.
func TestChangelogSaysThingsOnce(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(golden.Module(t), "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	const prefix = 60
	seen, entries := map[string]int{}, 0
	for i, line := range strings.Split(string(text), "\n") {
		entry, ok := strings.CutPrefix(line, "- ")
		if !ok {
			continue
		}
		entries++
		begin := entry[:min(len(entry), prefix)]
		if first := seen[begin]; first > 0 {
			t.Errorf("CHANGELOG.md:%d begins as line %d does: %q", i+1, first, begin)
			continue
		}
		seen[begin] = i + 1
	}
	if entries == 0 {
		t.Error("CHANGELOG.md: found no entries")
	}
}

var (
	mapRow  = regexp.MustCompile("(?m)^\\| ((?:`[^`]+`(?:, )?)+) \\|")
	mapName = regexp.MustCompile("`([^`]+)`")
)

// TestArchitectureMapsEveryPackage: the table of ARCHITECTURE.md names packages that exist, and all that are not for
// tests. A name that begins with a slash is below the package before it, or below that one's parent.
func TestArchitectureMapsEveryPackage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(golden.Module(t), "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	exists, mapped := map[string]bool{}, map[string]bool{}
	for _, p := range packages(t) {
		exists[p.path] = true
	}
	for _, row := range mapRow.FindAllStringSubmatch(string(text), -1) {
		last := ""
		for _, m := range mapName.FindAllStringSubmatch(row[1], -1) {
			name := m[1]
			switch {
			case !strings.HasPrefix(name, "/"):
				last = name
			case exists[last+name]:
				name = last + name
			default:
				name = filepath.ToSlash(filepath.Dir(last)) + name
			}
			if mapped[name] = true; !exists[name] && !strings.HasSuffix(name, "/…") && name != "testdata/outside" {
				t.Errorf("ARCHITECTURE.md maps %s, which does not exist", name)
			}
		}
	}
	for _, p := range packages(t) {
		if !mapped[p.path] && !testOnly(p) && !strings.HasPrefix(p.path+"/", "examples/") && !strings.HasPrefix(p.path, "scripts/") {
			t.Errorf("ARCHITECTURE.md does not map package %s", p.path)
		}
	}
}
