package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/smallfile"
)

// TestFlagsAndModelAreCheckedBeforeThePortIsTaken: while another server had the port, every
// mistake was reported as "address already in use".
func TestFlagsAndModelAreCheckedBeforeThePortIsTaken(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	port := strconv.Itoa(other.Addr().(*net.TCPAddr).Port)
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		status int
		says   string
		args   []string
	}{
		{2, "--max-memory", []string{"--max-memory", "cpu=lots"}},
		{2, "want one of", []string{"--tool-call-parser", "nope"}},
		{1, missing, []string{"--model", missing}},
		{1, "address already in use", nil},
	} {
		status, _, stderr := invoke(append(c.args, "--port", port)...)
		if status != c.status || !strings.Contains(stderr, c.says) {
			t.Errorf("serve %v: status %d, %s; want status %d and %q", c.args, status, stderr, c.status, c.says)
		}
	}
}

func TestAnUnknownCommandIsNotTakenForAModel(t *testing.T) {
	for args, says := range map[string]string{
		"plna":       "did you mean plan?",
		"lst":        "did you mean list?",
		"hlep":       "did you mean help?",
		"frobnicate": "the commands are run, chat, batch, ps, plan",
	} {
		if _, stderr := command(t, 2, args); !strings.Contains(stderr, `unknown command "`+args+`"`) || !strings.Contains(stderr, says) {
			t.Errorf("serve %s: %s", args, stderr)
		}
	}
	for _, args := range [][]string{{"run", "frobnicate"}, {"./frobnicate"}, {"--model", "frobnicate"}} {
		if _, stderr := command(t, 1, args...); !strings.Contains(stderr, "there is no model") {
			t.Errorf("serve %v: %s", args, stderr)
		}
	}
}

func TestFlagsOfOtherServersGetAHint(t *testing.T) {
	for args, says := range map[string]string{
		"-m model.gguf":            "use --model",
		"-c 4096":                  "use --max-model-len",
		"--ctx-size=4096":          "use --max-model-len",
		"-ngl 99":                  "use --device-map",
		"--trust-remote-code":      "never run",
		"plan --ctx-size 4096":     "use --max-model-len",
		"--tensor-parallel-size=2": "layers are placed whole",
	} {
		if _, stderr := command(t, 2, strings.Fields(args)...); !strings.Contains(stderr, says) {
			t.Errorf("serve %s: %s", args, stderr)
		}
	}
	if _, stderr := command(t, 2, "--nope"); !strings.Contains(stderr, "see serve run --help") {
		t.Errorf("serve --nope: %s", stderr)
	}
}

func TestHelpIsACommandToo(t *testing.T) {
	word, _ := command(t, 0, "help", "plan")
	if flag, _ := command(t, 0, "plan", "--help"); word != flag || !strings.Contains(word, "serve plan") {
		t.Errorf("serve help plan prints %q, serve plan --help %q", word, flag)
	}
	if out, _ := command(t, 0, "help"); !strings.Contains(out, "Commands:") {
		t.Errorf("serve help prints %q", out)
	}
	if _, stderr := command(t, 2, "help", "paln"); !strings.Contains(stderr, `unknown command "paln"`) { // showed the flags of serve run
		t.Errorf("serve help paln: %s", stderr)
	}
}

func TestVersionIsAFlagToo(t *testing.T) {
	t.Setenv("HEFT_VERSION", "1") // is not the variable of a flag
	flag, _ := command(t, 0, "--version")
	if word, _ := command(t, 0, "version"); flag != word || !strings.HasPrefix(flag, "heft ") {
		t.Errorf("--version prints %q, version %q", flag, word)
	}
}

func TestServeOffersToPullOnATerminal(t *testing.T) {
	startHub(t)
	_, missing := newSource("acme/demo")
	if missing == nil {
		t.Fatal("the model is in the cache")
	}
	var out bytes.Buffer
	ask := func(answer string) error {
		out.Reset()
		return offerPull(context.Background(), prompter{strings.NewReader(answer), &out}, missing)
	}
	for _, no := range []string{"", "\n", "n\n", "maybe\n"} {
		if err := ask(no); !errors.Is(err, missing) {
			t.Errorf("after %q: %v, want the error that names serve pull", no, err)
		}
	}
	if !strings.Contains(out.String(), "acme/demo is not in the cache. Pull it (4.") {
		t.Errorf("the question is %q", out.String())
	}
	if err := ask("Y\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := newSource("acme/demo"); err != nil {
		t.Errorf("after a yes: %v", err)
	}
	if err := offerPull(context.Background(), prompter{}, context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("another error became %v", err)
	}
}

func TestListAndRemovePulledModels(t *testing.T) {
	startHub(t)
	if out, _ := command(t, 0, "list"); !strings.Contains(out, "serve pull") {
		t.Errorf("an empty cache lists %q", out)
	}
	command(t, 1, "rm", "acme/demo")
	command(t, 0, "pull", "acme/demo")
	var list struct {
		Models []struct {
			Model    string
			Complete bool
			Bytes    int64
		}
	}
	parse(t, &list, "list", "--json")
	if len(list.Models) != 1 || list.Models[0].Model != "acme/demo" || !list.Models[0].Complete || list.Models[0].Bytes < 1<<20 {
		t.Errorf("list --json: %+v", list)
	}
	if out, _ := command(t, 0, "list"); !strings.Contains(out, "acme/demo  main (0123456)  ") {
		t.Errorf("list: %q", out)
	}
	command(t, 2, "rm")
	command(t, 1, "rm", "acme/demo@v9")
	if out, _ := command(t, 0, "rm", "acme/demo"); !strings.Contains(out, "removed acme/demo, ") {
		t.Errorf("rm: %q", out)
	}
	parse(t, &list, "list", "--json")
	if len(list.Models) != 0 {
		t.Errorf("after rm: %+v", list)
	}
}

// TestADeviceMapFileHasALimit: a file of any size was read whole, and a device without end.
func TestADeviceMapFileHasALimit(t *testing.T) {
	large := filepath.Join(t.TempDir(), "map.json")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, smallfile.Config+1); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "folder.json")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{large: "larger than", folder: "not a regular file"} {
		if status, _, stderr := invoke("plan", "--device-map", path); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, %s; want status 2 and %q", path, status, stderr, want)
		}
	}
}
