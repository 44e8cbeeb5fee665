package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/internal/cmdline/doctest"
	"github.com/heftai/heft/internal/golden"
)

// flagsOf calls f with each flag of each command.
func flagsOf(t *testing.T, f func(command string, flag *kong.Flag)) {
	t.Helper()
	k, err := kong.New(new(cli), kong.Vars{"version": version})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range k.Model.Children {
		for _, flag := range command.Flags {
			f(command.Name, flag)
		}
	}
}

// TestHelpTextsAreShort: the help of a flag has at most 80 characters.
func TestHelpTextsAreShort(t *testing.T) {
	flagsOf(t, func(command string, flag *kong.Flag) {
		if n := utf8.RuneCountInString(flag.Help); n == 0 || n > 80 {
			t.Errorf("train %s --%s: the help has %d characters, want 1 to 80", command, flag.Name, n)
		}
	})
}

// TestTrainingPagesNameEveryFlag: docs/training.md and docs/finetuning.md name each flag of each command.
func TestTrainingPagesNameEveryFlag(t *testing.T) {
	var page []byte
	for _, name := range []string{"training.md", "finetuning.md"} {
		text, err := os.ReadFile(filepath.Join(golden.Module(t), "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		page = append(page, text...)
	}
	page = bytes.ReplaceAll(page, []byte("_"), []byte("-")) // Accelerate's spelling
	flagsOf(t, func(command string, flag *kong.Flag) {
		if !flag.Hidden && flag.Name != "help" && !bytes.Contains(page, []byte("--"+flag.Name)) {
			t.Errorf("the pages do not name --%s of train %s", flag.Name, command)
		}
	})
}

// TestDocumentationHasCommandsThatExist: each command line of train in README.md and docs names commands and flags of train.
func TestDocumentationHasCommandsThatExist(t *testing.T) {
	k, err := kong.New(new(cli), kong.Vars{"version": version})
	if err != nil {
		t.Fatal(err)
	}
	doctest.CheckDocumentation(t, k.Model, "train", "", map[string]string{"launch": "run"}, 20)
}

// TestAnOutputThatIsAFileIsNamedByItsFlag: the error was "mkdir FILE: not a directory".
func TestAnOutputThatIsAFileIsNamedByItsFlag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data.jsonl")
	if err := os.WriteFile(file, []byte(`{"text": "a b c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := command(t, "run", "--model", filepath.Join(golden.Module(t), "loader", "demo", "model"), "--data", file, "--output", file)
	if status != 1 || !strings.Contains(stderr, "--output "+file+": ") {
		t.Errorf("status %d, %s", status, stderr)
	}
}

// TestLaunchWithoutArgumentsNamesBothForms: the error once asked for --data and --output alone.
func TestLaunchWithoutArgumentsNamesBothForms(t *testing.T) {
	status, _, stderr := command(t, "launch")
	if status != 2 || !strings.Contains(stderr, "PROGRAM") || !strings.Contains(stderr, "--data") {
		t.Errorf("status %d, %s", status, stderr)
	}
}
