package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/internal/golden"
)

var configFlag = regexp.MustCompile("--([a-z][a-z-]*)")

// TestConfigurationPageHasTheDefaults: docs/configuration.md shows the default of each flag of serve
// run that has one.
func TestConfigurationPageHasTheDefaults(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(golden.Module(t), "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for line := range strings.Lines(string(page)) {
		columns := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `--") || len(columns) < 3 {
			continue
		}
		for _, flag := range configFlag.FindAllStringSubmatch(columns[0], -1) {
			if _, twice := shown[flag[1]]; !twice {
				shown[flag[1]] = columns[1]
			}
		}
	}
	k, err := kong.New(new(cli), kong.Vars{"version": version})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, command := range k.Model.Children {
		if command.Name != "run" {
			continue
		}
		for _, flag := range command.Flags {
			if flag.Hidden || flag.Default == "" || flag.Default == "0" || flag.Default == "false" {
				continue
			}
			checked++
			if column, ok := shown[flag.Name]; !ok || !strings.Contains(column, flag.Default) {
				t.Errorf("docs/configuration.md: the default of --%s is %q, want %q", flag.Name, column, flag.Default)
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d flags have a default", checked)
	}
}
