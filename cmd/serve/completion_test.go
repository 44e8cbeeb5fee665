package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/testenv"
)

// TestBashCompletion asks a real bash what follows some beginnings.
func TestBashCompletion(t *testing.T) {
	shell, err := exec.LookPath("bash")
	testenv.Need(t, "bash", err == nil, "install bash")
	var script bytes.Buffer
	if status := run([]string{"completion", "bash"}, &script, &script); status != 0 {
		t.Fatalf("status %d: %s", status, script.String())
	}
	name := filepath.Join(t.TempDir(), "completion")
	if err := os.WriteFile(name, script.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"serve pl":                 "plan",
		"serve plan --off":         "--offload-buffers",
		"serve --shutdown":         "--shutdown-timeout",
		"serve --precision h":      "high",
		"serve bench --decode-tok": "--decode-tokens",
	} {
		words := strings.Fields(line)
		program := "source " + name + "; COMP_WORDS=(" + line + "); COMP_CWORD=" + string(rune('0'+len(words)-1)) + "; _serve; echo ${COMPREPLY[@]}"
		command := exec.Command(shell, "--norc", "-c", program)
		command.Dir = t.TempDir() // names of files are offered too
		out, err := command.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s⇥ gives %q (%v), want %q", line, out, err, want)
		}
	}
}

func TestFishAndZshCompletion(t *testing.T) {
	for shell, want := range map[string]string{
		"fish": "complete -c serve -n '__fish_seen_subcommand_from plan' -l offload-buffers",
		"zsh":  "#compdef serve",
	} {
		var out, errors bytes.Buffer
		if status := run([]string{"completion", shell}, &out, &errors); status != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d, %s%s", shell, status, out.String(), errors.String())
		}
	}
	var out bytes.Buffer
	if status := run([]string{"completion", "tcsh"}, &out, &out); status != 2 {
		t.Errorf("tcsh: status %d: %s", status, out.String())
	}
}

// TestAWrongShellNamesTheArgument: the error named <shell>, where that of a missing one has SHELL.
func TestAWrongShellNamesTheArgument(t *testing.T) {
	status, _, stderr := invoke("completion", "tcsh")
	if want := `SHELL: got "tcsh", want one of bash, zsh, fish`; status != 2 || !strings.Contains(stderr, want) {
		t.Errorf("status %d: %s, want 2 with %q", status, stderr, want)
	}
}
