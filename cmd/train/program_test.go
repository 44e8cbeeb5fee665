package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/train"
)

// rankOfATest is the program that TestLaunchAProgram launches: it gathers ranks, and with "fail" rank
// 1 ends while the others wait.
func rankOfATest(args []string) int {
	world, err := train.FromEnvironment(context.Background())
	if err == nil {
		err = world.Close(gatherRanks(world, slices.Contains(args, "fail")))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func gatherRanks(w *train.World, fail bool) error {
	a, err := train.New(train.Config{World: w})
	if err != nil {
		return err
	}
	all, err := train.Gather(w.Context(), a, []int{a.ProcessIndex()*10 + a.LocalProcessIndex()})
	if err != nil {
		return err
	}
	fmt.Println("gathered", all)
	if fail && w.Rank() == 1 {
		p, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = p.Kill()
		}
		if err != nil {
			return err
		}
		select {} // until the signal comes
	}
	return a.WaitForEveryone(w.Context())
}

func TestLaunchAProgram(t *testing.T) {
	t.Setenv("TEST_IS_RANK", "1")
	t.Setenv("HF_HOME", t.TempDir()) // no configuration of this machine
	status, out, errs := command(t, "launch", "--num_processes", "3", os.Args[0], "--flag-of-the-program")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	want := []string{"[0] gathered [0 11 22]", "[1] gathered [0 11 22]", "[2] gathered [0 11 22]"}
	if status != 0 || !slices.Equal(lines, want) {
		t.Errorf("status %d, %q, %s", status, lines, errs)
	}
}

// A rank that is killed ends the launch, and is named by the launcher and by the other ranks.
func TestLaunchNamesARankThatFails(t *testing.T) {
	t.Setenv("TEST_IS_RANK", "1")
	t.Setenv("HF_HOME", t.TempDir())
	status, _, errs := command(t, "launch", "--nproc_per_node=2", os.Args[0], "fail")
	if status != 1 || !strings.Contains(errs, "rank 1 failed: signal: killed") || !strings.Contains(errs, "[0] ") || !strings.Contains(errs, "rank 1: connection to 127.0.0.1") {
		t.Errorf("status %d, %s", status, errs)
	}
}

func TestLaunchRejects(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	for want, args := range map[string][]string{
		"got --num-processes 3 and --num-machines 2, want a multiple": {"--num_machines=2", "--num_processes=3", "--main_process_ip=192.0.2.1", "true"},
		"got --num-machines 2 without --main-process-ip":              {"--num_machines=2", "true"},
		"--machine-rank 2, want 0 to 1":                               {"--num_machines=2", "--machine_rank", "2", "true"},
		"set HEFT_RUN_TOKEN on each":                                  {"--num_machines=2", "--main_process_ip=192.0.2.1", os.Args[0]},
		"no-such-program-of-heft":                                     {"no-such-program-of-heft"},
		"unknown flag --what":                                         {"--what", "true"},
	} {
		status, _, errs := command(t, append([]string{"launch"}, args...)...)
		if status != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: status %d, %q, want %q", args, status, errs, want)
		}
	}
}

func TestLaunchRunIsATrainingRun(t *testing.T) {
	rest, program := programArgs([]string{"--num_processes", "2", "run", "--model", "x"})
	if program || !slices.Equal(rest, []string{"--num-processes", "2", "run", "--model", "x"}) {
		t.Errorf("%v, %v", rest, program)
	}
	if rest, program := programArgs([]string{"--num_processes", "2", "--", "run", "-x"}); !program || !slices.Equal(rest, []string{"--num-processes", "2", "run", "-x"}) {
		t.Errorf("behind --: %v, %v", rest, program)
	}
	if _, program := programArgs([]string{"--config_file=x", "--model", "m"}); program {
		t.Error("flags of train run were taken for a program")
	}
}

// TestFlagsOfLaunchTakeDashesAndUnderscores: flags of train run had to have dashes in train launch, where accelerate's had
// either.
func TestFlagsOfLaunchTakeDashesAndUnderscores(t *testing.T) {
	if n := len(launchFlags()); n < 7 {
		t.Fatalf("train launch has %d flags", n)
	}
	for name := range launchFlags() {
		for _, name := range []string{name, "--" + strings.ReplaceAll(name[2:], "-", "_")} {
			for _, args := range [][]string{{name, "2"}, {name + "=2"}} {
				rest, program := programArgs(append(args, "prog", "--a_b"))
				if !program || !slices.Equal(rest[len(rest)-2:], []string{"prog", "--a_b"}) || !slices.Equal(rest[:len(rest)-2], allDashed(args)) {
					t.Errorf("%q: got %q, %t", args, rest, program)
				}
			}
		}
	}
	t.Setenv("HF_HOME", t.TempDir())
	dir, text := tinyModel(t), lessons(t, 4)
	status, _, errs := command(t, "launch", "--num_processes", "1", "--model", dir, "--data", text, "--output", t.TempDir()+"/out", "--max_steps", "1", "--learning_rate=1e-4")
	if status != 0 {
		t.Errorf("status %d, %s", status, errs)
	}
	for arg, want := range map[string]string{"--num_proceses": `did you mean "--num-processes"?`, "--learning_rat": `did you mean "--learning-rate"?`} {
		if status, _, errs := command(t, "launch", arg, "2", "--model", dir); status != 2 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %s, want %s", arg, status, errs, want)
		}
	}
	if status, _, errs := command(t, "launch", "--num_proceses", "2", "true"); status != 2 || !strings.Contains(errs, `did you mean "--num-processes"?`) {
		t.Errorf("status %d, %s", status, errs)
	}
	if status, _, errs := command(t, "config", "--num_proceses", "2"); status != 2 || !strings.Contains(errs, `did you mean "--num-processes"?`) {
		t.Errorf("status %d, %s", status, errs)
	}
}
