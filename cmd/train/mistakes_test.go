package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAProgramThatCannotStartSaysWhatToDo: train launch printed the messages of exec and of go build alone.
func TestAProgramThatCannotStartSaysWhatToDo(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"plain": "", "train.py": "", "half.go": "package main\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"missing.go": "there is no program missing.go: want a program, a Go file",
		"./missing":  "there is no program ./missing: want a program",
		"missing":    "no program missing in $PATH or in this folder",
		"plain":      "for the file in this folder, use ./plain",
		"./plain":    "run chmod +x ./plain",
		"train.py":   "use accelerate launch train.py",
		"half.go":    "building half.go failed",
	} {
		status, _, stderr := command(t, "launch", name)
		if usage := 2; status == 0 || (name != "half.go") != (status == usage) || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, %s, want %q", name, status, stderr, want)
		}
	}
	t.Setenv("PATH", "")
	if status, _, stderr := command(t, "launch", "half.go"); status != 2 || !strings.Contains(stderr, "install Go") {
		t.Errorf("without a go command: status %d, %s", status, stderr)
	}
}

// TestAThousandRanksAreAnError: train test started a thousand processes, and a step of train run took 500 s.
func TestAThousandRanksAreAnError(t *testing.T) {
	run := "run " + tinyModel(t) + " --data " + lessons(t, 2) + " --output " + filepath.Join(t.TempDir(), "out") + " --num-processes 1000"
	for _, args := range []string{run, "test --num-processes 1000", "launch --num-processes 1000 go", "test --nproc-per-node 1000"} {
		if status, _, stderr := command(t, strings.Fields(args)...); status != 2 || !strings.Contains(stderr, "got 1000 ranks for this machine") {
			t.Errorf("%s: status %d, %s", args, status, stderr)
		}
	}
}

// TestAFolderThatIsNoModelSaysSo: train run named a missing tokenizer for all of these.
func TestAFolderThatIsNoModelSaysSo(t *testing.T) {
	data := lessons(t, 2)
	for name, c := range map[string]struct {
		prepare func(dir string) error
		want    string
	}{
		"empty":     {func(string) error { return nil }, "want a folder with config.json, tokenizer.json and the weights"},
		"encoder":   {func(dir string) error { return writeText(dir, "config.json", `{"model_type": "bert"}`) }, `"bert" is not supported`},
		"truncated": {func(dir string) error { return writeText(dir, "config.json", `{`) }, "was the file fetched whole?"},
		"wordless":  {func(dir string) error { return writeText(dir, "config.json", tinyConfig) }, "--model needs the files of its tokenizer in the folder"},
	} {
		dir := t.TempDir()
		if err := c.prepare(dir); err != nil {
			t.Fatal(err)
		}
		if status, _, stderr := command(t, "run", dir, "--data", data, "--output", filepath.Join(t.TempDir(), "out")); status == 0 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %s, want %q", name, status, stderr, c.want)
		}
	}
}

func writeText(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
}

// TestResumeTakesOnlyCheckpointsForCheckpoints: --resume DIR recommended any folder there whose name ends in a number.
func TestResumeTakesOnlyCheckpointsForCheckpoints(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "java-17"), 0o700); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := command(t, "run", tinyModel(t), "--data", lessons(t, 2), "--output", filepath.Join(t.TempDir(), "out"), "--resume", dir)
	if status != 2 || strings.Contains(stderr, "java-17") || !strings.Contains(stderr, "got no checkpoint there") {
		t.Errorf("status %d, %s", status, stderr)
	}
}
