package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// On a terminal train config asks, again after an answer that is not valid. Flags and answers give
// configurations that train launch takes.
func TestConfigAsks(t *testing.T) {
	for answers, want := range map[string]configCmd{
		"\n\n\n":                               {NumMachines: 1, NumProcesses: 1, MixedPrecision: "no"},
		"1\nmany\n0\n4\nfp8\nbf16\n2\n":        {NumMachines: 1, NumProcesses: 4, MixedPrecision: "bf16", ZeroStage: 2},
		"2\n5\n1\n\n192.0.2.1\n\n3\nno\n1\n\n": {NumMachines: 2, MachineRank: 1, MainProcessIP: "192.0.2.1", MainProcessPort: 29500, NumProcesses: 6, MixedPrecision: "no", ZeroStage: 1},
	} {
		var said bytes.Buffer
		c := configCmd{NumMachines: 1, MixedPrecision: "no"}
		if err := c.ask(strings.NewReader(answers), &said); err != nil || c != want {
			t.Errorf("%q: %+v, want %+v, %v\n%s", answers, c, want, err, &said)
			continue
		}
		found, err := c.config()
		if err == nil {
			err = found.supported()
		}
		if err != nil {
			t.Errorf("%q: %v", answers, err)
			continue
		}
		var w worldFlags
		processes := 0
		if err := w.settle(found, &processes); err != nil || processes != want.NumProcesses || w.NumMachines != want.NumMachines || w.MachineRank != want.MachineRank {
			t.Errorf("%q: launch takes %d processes, %+v, %v", answers, processes, w, err)
		}
		if stage := strings.TrimPrefix(found.zero().plugin, "zero"); want.ZeroStage > 0 && stage != string(rune('0'+want.ZeroStage)) {
			t.Errorf("%q: plugin %s", answers, found.zero().plugin)
		}
	}
	c := configCmd{NumMachines: 1}
	if err := c.ask(strings.NewReader("1\n"), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "nothing was written") {
		t.Errorf("an input that ends: %v", err)
	}
}

func TestConfigTakesFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	status, _, stderr := command(t, "config", "--config_file", file, "--num_processes=4", "--num_machines", "2", "--machine_rank", "1",
		"--main_process_ip", "192.0.2.1", "--main_process_port", "1234", "--zero_stage", "2", "--mixed_precision", "bf16")
	if status != 0 {
		t.Fatal(stderr)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"distributed_type: DEEPSPEED\n", "deepspeed_config:\n    zero_stage: 2\n", "num_processes: 4\n", "num_machines: 2\n",
		"machine_rank: 1\n", "main_process_ip: 192.0.2.1\n", "main_process_port: 1234\n", "mixed_precision: bf16\n"} {
		if !strings.Contains(string(b), line) {
			t.Errorf("no %q in\n%s", line, b)
		}
	}
	for want, args := range map[string][]string{
		"got --num-processes 3 and --num-machines 2, want a multiple": {"--num-machines", "2", "--num-processes", "3", "--main-process-ip", "x"},
		"got --num-machines 2 without --main-process-ip":              {"--num-machines", "2"},
		"got --zero-stage 3": {"--zero-stage", "3"},
		"want 0 to 65535":    {"--main-process-port", "70000"},
	} {
		if status, _, stderr := command(t, append([]string{"config", "--config-file", filepath.Join(t.TempDir(), "d.yaml")}, args...)...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%v: %d, %s", args, status, stderr)
		}
	}
}
