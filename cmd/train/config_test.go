package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// keyTypes are the reference's names of types.
var keyTypes = map[string]kind{"<class 'str'>": text, "Optional[str]": text, "<class 'bool'>": flag, "Optional[bool]": flag,
	"<class 'int'>": number, "Optional[int]": number, "Optional[dict]": mapping, "list[str]": list}

func TestGoldenConfig(t *testing.T) {
	n := 0
	for _, path := range golden.Glob(t, "train/config/config.json") {
		var file map[string]json.RawMessage
		golden.JSON(t, path, &file)
		for name, raw := range file {
			var content string
			isText := json.Unmarshal(raw, &content) == nil
			switch {
			case name == "keys":
				n++
				t.Run(name, func(t *testing.T) { checkKeys(t, raw) })
			case isText && strings.HasPrefix(name, "write_basic_config"):
				n++
				t.Run(name, func(t *testing.T) { checkBasic(t, content, "default_config.json") })
			case isText && strings.HasPrefix(name, "default_config."):
				n++
				t.Run(name, func(t *testing.T) { checkBasic(t, content, name) })
			}
		}
	}
	for _, path := range golden.Glob(t, "train/config/*.yaml") {
		n++
		t.Run(filepath.Base(path), func(t *testing.T) {
			b, err := golden.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			checkBasic(t, string(b), path)
		})
	}
	golden.Count(t, "train/config", n)
}

// checkBasic reads a file and writes it again, byte for byte.
func checkBasic(t *testing.T, content, name string) {
	t.Helper()
	c, err := parseConfig([]byte(content), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.supported(); err != nil {
		t.Error(err)
	}
	again := basicConfig(c.number("num_processes"), c.precision())
	if !reflect.DeepEqual(c, again) {
		t.Errorf("read %v, want %v", c, again)
	}
	b, err := again.encode(name)
	if err != nil || string(b) != content {
		t.Errorf("wrote\n%s\nwant\n%s (%v)", b, content, err)
	}
}

func checkKeys(t *testing.T, raw json.RawMessage) {
	t.Helper()
	var keys map[string][2]any
	if err := json.Unmarshal(raw, &keys); err != nil {
		t.Fatal(err)
	}
	for name, want := range keys {
		k, ok := configKeys[name]
		if !ok {
			t.Errorf("the key %s is not known", name)
			continue
		}
		typeName, _ := want[0].(string)
		if wanted, ok := keyTypes[typeName]; ok && k.kind != wanted {
			t.Errorf("%s is %v, want %v", name, k.kind, typeName)
		}
		got, _ := json.Marshal(k.value)
		value, _ := json.Marshal(want[1])
		if !bytes.Equal(got, value) {
			t.Errorf("%s is %s by default, want %s", name, got, value)
		}
	}
	if len(keys) != len(configKeys) {
		t.Errorf("%d keys, want %d", len(configKeys), len(keys))
	}
}

func TestConfigsThatAreRefused(t *testing.T) {
	for content, want := range map[string]string{
		"unknown_key: 1\nother: 2":      "unknown keys: other, unknown_key",
		"num_processes: many":           "num_processes: got many, want a number",
		"use_cpu: 3":                    "use_cpu: got 3, want a true or false",
		"a: [":                          "c.yaml",
		"distributed_type: MULTI_GPU":   "MULTI_GPU is not supported",
		"distributed_type: FSDP":        "(LowLevelZeroPlugin), or --plugin gemini (GeminiPlugin)",
		"distributed_type: MEGATRON_LM": "(LowLevelZeroPlugin)",
		"distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}":                  "zero_stage 3 is not supported: use zero_stage 2 (LowLevelZeroPlugin), or --plugin gemini (GeminiPlugin)",
		"distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: two}":                "zero_stage: got two, want 0, 1 or 2",
		"distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: ds.json}": "deepspeed_config_file is not supported",
		"distributed_type: DEEPSPEED\ndeepspeed_config: {offload_optimizer_device: nvme}": "use cpu or none",
		"distributed_type: DEEPSPEED\nfsdp_config: {a: 1}":                                "fsdp_config is not supported with distributed_type DEEPSPEED",
		"deepspeed_config: {zero: 3}":                                                     "deepspeed_config is not supported",
		"compute_environment: [1, 2]":                                                     "want a text",
		"dynamo_config: text":                                                             "want a mapping",
	} {
		c, err := parseConfig([]byte(content), "c.yaml")
		if err == nil {
			err = c.supported()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
	c, err := parseConfig([]byte("downcast_bf16: 'no'\nuse_cpu: yes\nfsdp_config: {}\ngpu_ids: 0\n"), "old.yaml")
	if err != nil || c["downcast_bf16"] != false || c["use_cpu"] != true || c.supported() != nil || c.text("gpu_ids") != "0" {
		t.Errorf("an older file: %v, %v", c, err)
	}
}

func TestConfigIsWrittenOnce(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HF_HOME", dir)
	at := filepath.Join(dir, "accelerate", "default_config.yaml")
	status, stdout, stderr := command(t, "config", "--num-processes", "2", "--mixed-precision", "bf16")
	if status != 0 || !strings.Contains(stdout, at) {
		t.Fatalf("%d: %s%s", status, stdout, stderr)
	}
	if status, _, stderr := command(t, "config"); status != 2 || !strings.Contains(stderr, "--force") {
		t.Errorf("written twice: %d, %s", status, stderr)
	}
	if status, stdout, _ := command(t, "config", "--show"); status != 0 || !strings.Contains(stdout, "num_processes: 2\n") {
		t.Errorf("shown: %d, %s", status, stdout)
	}
	if status, _, _ := command(t, "config", "--force"); status != 0 {
		t.Error("not replaced")
	}
	if status, _, stderr := command(t, "config", "--config-file", filepath.Join(dir, "none"), "--show"); status != 2 || !strings.Contains(stderr, "--config-file "+filepath.Join(dir, "none")+": no such file") {
		t.Error("showed a file that is not there")
	}
}

func TestEnvAndTest(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HEFT_THREADS", "1")
	t.Setenv("HEFT_API_KEY", "secret")
	t.Setenv("TEST_IS_TRAIN", "1")
	if status, stdout, stderr := command(t, "env"); status != 0 || !strings.Contains(stdout, "- Configuration: not found\n") || !strings.Contains(stdout, "- HEFT_THREADS: 1\n") ||
		strings.Contains(stdout, "secret") {
		t.Errorf("%d: %s%s", status, stdout, stderr)
	}
	var all map[string]any
	if status, stdout, _ := command(t, "env", "--json"); status != 0 || json.Unmarshal([]byte(stdout), &all) != nil || all["heft_version"] != version {
		t.Errorf("%d: %v", status, all)
	}
	for _, ranks := range []string{"1", "2", "3"} {
		if status, stdout, stderr := command(t, "test", "--num-processes", ranks); status != 0 || strings.Count(stdout, " ok\n") != len(checks) {
			t.Errorf("%s ranks: %d: %s%s", ranks, status, stdout, stderr)
		}
	}
	if status, _, stderr := command(t, "test", "--num-processes=-1"); status != 2 || !strings.Contains(stderr, "at least 1") {
		t.Errorf("-1 ranks: %d: %s", status, stderr)
	}
}

// command runs train with these arguments.
func command(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

// TestAFileOfTheWorkingFolderIsNotTheUsersConfiguration: without HOME, the configuration was read from the working folder, and
// written into it.
func TestAFileOfTheWorkingFolderIsNotTheUsersConfiguration(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"HOME", "HF_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
	}
	folder := filepath.Join(".cache", "huggingface", "accelerate")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "default_config.yaml"), []byte("num_processes: 77\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stdout, stderr := command(t, "config", "--show"); strings.Contains(stdout, "77") || strings.Contains(stderr, "in .cache") {
		t.Errorf("got %s%s", stdout, stderr)
	}
}
