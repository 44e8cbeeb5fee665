package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline/doctest"
	"github.com/heftai/heft/internal/golden"
)

// invoke runs the command line and returns its status and output.
func invoke(args ...string) (status int, stdout, stderr string) {
	var out, errors bytes.Buffer
	status = run(args, &out, &errors)
	return status, out.String(), errors.String()
}

func TestErrorsAreOneLineWithTheirStatus(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	unknown := write("config.json", `{"model_type":"mamba9"}`)
	badMap := write("map.json", `{"model": `)
	typo := write("typo.yaml", "max-memroy: cpu=1GiB")
	bare, half := filepath.Join(dir, "bare"), filepath.Join(dir, "half")
	for folder, config := range map[string]string{bare: "", filepath.Join(dir, "broken"): "", half: `{"model_type": `} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if config != "" {
			write(filepath.Join(filepath.Base(folder), "config.json"), config)
		}
	}
	badYAML := write("bad.yaml", "port: [1, {")
	for _, c := range []misuse{
		{"--nope", 2, "--nope"},
		{"plan --precision low", 2, "precision"},
		{"--port eighty", 2, "port"},
		{"plan --device-map nowhere", 2, "nowhere"},
		{"plan --device-map " + badMap, 2, "--device-map"},
		{"plan --max-memory cpu=lots", 2, "--max-memory"},
		{"--max-batch=-1", 2, "--max-batch"},
		{"--threads 100000", 2, "--threads"}, // which hung
		{"--max-queue=-1", 2, "--max-queue"},
		{"--draft-tokens=many", 2, "--draft-tokens"},
		{"--draft-tokens=16", 2, "--draft-tokens"},
		{"--port 99999", 2, "65535"},
		{"--shutdown-timeout=-1s", 2, "--shutdown-timeout"},
		{"--api-key ,", 2, "want one or more keys"}, // it accepted every request
		withoutGPU(),
		{"--config " + typo, 2, "max-memroy"}, // which was ignored
		{"--model " + bare, 1, bare + ": config.json is missing"},
		{"--model " + write("broken/model.gguf", "GGUF\x03\x00\x00\x00"), 1, "the file is cut"}, // which wanted a config.json
		{"plan " + write("bare/notes.md", "# Notes on models"), 1, "no safetensors file"},
		{"--model " + half, 1, half},
		{"--tool-call-parser nope", 2, "want one of apertus"},
		{"--tool-call-parser nope", 2, "serve: --tool-call-parser: text: tool calls:"},
		{"--reasoning-parser nope", 2, "serve: --reasoning-parser: text: reasoning:"}, // all errors named both flags
		{"--dtype float16", 2, "used in place"},
		{"plan a --model b", 2, "twice"},
		{"--device-map model.layer.0=disk", 2, "model.layers"},
		{"--config " + badYAML, 2, "bad.yaml"},
		{"plan " + unknown, 1, "did you mean mamba or mamba2?"},
		{"plan " + unknown, 1, unknown},
		{"plan " + filepath.Join(dir, "missing"), 1, "missing"},
		{"--model " + dir, 1, "no safetensors"},
		{"--max-memory cpu=50KB --strict-memory", 1, "less than"},
		{"--cpu z80", 2, "z80"},
	} {
		c.check(t)
	}
}

// withoutGPU is the error of a GPU that the build, or the machine, lacks.
func withoutGPU() misuse {
	if dispatch.GPUCode {
		return misuse{"--max-memory 0=1GiB", 1, "the device map has GPU 0: cuda: no GPU 0: "}
	}
	return misuse{"--max-memory 0=1GiB", 2, "computes on the CPU"}
}

// A misuse is a command line that fails with a status and one line.
type misuse struct {
	args   string
	status int
	says   string
}

func (c misuse) check(t *testing.T) {
	t.Helper()
	status, _, stderr := invoke(strings.Fields(c.args)...)
	if status != c.status {
		t.Errorf("serve %s: status %d, want %d: %s", c.args, status, c.status, stderr)
	}
	var lines []string
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "serve: ") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], c.says) {
		t.Errorf("serve %s: stderr %q, want one line that says %q", c.args, stderr, c.says)
	}
}

func TestConfigFileAndEnvironmentSetFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "serve.yaml")
	if err := os.WriteFile(file, []byte("max-memory: [cpu=3MiB]\ndevice_map: disk\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, stderr := invoke("plan", "--config", file, "--json"); status != 0 || !strings.Contains(out, `"disk"`) || !strings.Contains(out, "3145728") {
		t.Errorf("with a file: status %d\n%s%s", status, out, stderr)
	}
	t.Setenv("HEFT_DEVICE_MAP", "disk")
	if status, out, stderr := invoke("plan", "--json"); status != 0 || !strings.Contains(out, `"disk"`) {
		t.Errorf("with the environment: status %d\n%s%s", status, out, stderr)
	}
}

func TestPlanJSONHasTheFieldsOfTheDesign(t *testing.T) {
	status, out, stderr := invoke("plan", "--json", "--max-memory", "cpu=2MiB", "--no-probe")
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	var plan struct {
		DeviceMap [][2]string `json:"device_map"`
		Devices   []map[string]any
		Predicted map[string]any
		Measured  map[string]any
	}
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		t.Fatal(err)
	}
	for _, d := range plan.Devices {
		for _, field := range []string{"device", "limit_bytes", "weights_bytes", "kv_bytes", "activation_bytes", "staging_bytes"} {
			if _, ok := d[field]; !ok {
				t.Errorf("device %v has no %s", d["device"], field)
			}
		}
	}
	for _, rates := range []map[string]any{plan.Predicted, plan.Measured} {
		for _, field := range []string{"load_seconds", "first_token_seconds", "tokens_per_second", "disk_bytes_per_token"} {
			if _, ok := rates[field]; !ok {
				t.Errorf("%v has no %s", rates, field)
			}
		}
	}
	if len(plan.DeviceMap) < 3 || plan.DeviceMap[0][0] != "model.embed_tokens" {
		t.Errorf("device_map is %v", plan.DeviceMap)
	}
}

func TestPlanOfABareConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	config := `{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":16384,"intermediate_size":53248,"num_hidden_layers":126,
		"num_attention_heads":128,"num_key_value_heads":8,"vocab_size":128256,"max_position_embeddings":131072,"torch_dtype":"bfloat16"}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, stderr := invoke("plan", file, "--max-memory", "0=80GiB,cpu=200GiB", "--no-split", "LlamaDecoderLayer", "--offload-buffers", "--no-probe")
	if status != 0 || !strings.Contains(out, "model.layers") || !strings.Contains(out, "disk") {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
}

// TestHelpTextsAreShort: the help of a flag is one imperative of at most 80 characters, then the
// default.
func TestHelpTextsAreShort(t *testing.T) {
	k, err := kong.New(new(cli), kong.Vars{"version": version})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range append(k.Model.Children, k.Model.Node) {
		for _, flag := range command.Flags {
			text, _, _ := strings.Cut(flag.Help, " (default")
			if n := utf8.RuneCountInString(text); n == 0 || n > 80 {
				t.Errorf("serve %s --%s: the help has %d characters, want 1 to 80", command.Name, flag.Name, n)
			}
		}
	}
}

// TestConfigurationPageNamesEveryFlag: docs/configuration.md, or docs/terminal.md of chat, batch and ps,
// names each flag of each command.
func TestConfigurationPageNamesEveryFlag(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(golden.Module(t), "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := kong.New(new(cli), kong.Vars{"version": version})
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.ReadFile(filepath.Join(golden.Module(t), "docs", "terminal.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range k.Model.Children {
		pages := page
		if command.Name == "chat" || command.Name == "batch" || command.Name == "ps" {
			pages = append(bytes.Clone(page), terminal...)
		}
		for _, flag := range command.Flags {
			if !flag.Hidden && !bytes.Contains(pages, []byte("--"+flag.Name)) {
				t.Errorf("docs/configuration.md has no line for --%s of serve %s", flag.Name, command.Name)
			}
		}
	}
}

// TestDocumentationHasCommandsThatExist: each command line of serve in README.md and docs names commands and flags of serve.
func TestDocumentationHasCommandsThatExist(t *testing.T) {
	k, err := kong.New(new(cli), kong.Vars{"version": version})
	if err != nil {
		t.Fatal(err)
	}
	doctest.CheckDocumentation(t, k.Model, "serve", "run", nil, 50)
}

// TestHelpOfModelSaysWhatTheCommandDoes: serve rm does not "serve this folder (default: a demo)".
func TestHelpOfModelSaysWhatTheCommandDoes(t *testing.T) {
	for name, want := range map[string]string{"rm": "Delete this ORG/NAME[@REVISION].", "pull": "Download this ", "plan": "Plan this folder", "estimate": "Estimate this folder",
		"bench": "Measure this folder", "chat": "Chat with this folder"} {
		k, err := kong.New(new(cli), kong.Vars{"version": version})
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range k.Model.Children {
			for _, flag := range command.Flags {
				if command.Name == name && flag.Name == "model" && !strings.HasPrefix(flag.Help, want) {
					t.Errorf("serve %s --model: got the help %q, want %q", name, flag.Help, want)
				}
			}
		}
	}
}
