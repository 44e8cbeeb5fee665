// Command train fine-tunes the models that serve runs.
//
//	train run --model DIR --data FILE.jsonl --output DIR   fine-tune a model
//	train launch PROGRAM …    run a Go program with several ranks, one process each
//	train launch --model …    train run with several ranks, one process each
//	train bench --model DIR   measure the speed of a training step
//	train estimate MODEL      what memory and disk each way to fine-tune takes
//	train config              write that configuration
//	train test                check that training works on this machine
//	train env                 print the environment, for bug reports
//
// This package reads flags, HEFT_* variables and the file of --config, turns them into
// values and wires the packages together. The exit status is 2 for a mistake in the command line,
// 130 for a run that Ctrl-C stopped and 143 for one that SIGTERM stopped, both after saving, and 1
// for any other error.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/internal/cmdline"
)

// cli is the command line.
type cli struct {
	Config kong.ConfigFlag `help:"Read flags from a YAML file." placeholder:"FILE.yaml" env:"HEFT_CONFIG"`

	ShowVersion kong.VersionFlag `name:"version" env:"-" help:"Print the version and exit."`

	Run      runCmd      `cmd:"" help:"Fine-tune all weights of a model, or a LoRA adapter."`
	Launch   launchCmd   `cmd:"" help:"Run PROGRAM, or a fine-tuning run, with several ranks."`
	Bench    benchCmd    `cmd:"" help:"Measure the speed of a training step: forward, backward and AdamW."`
	Estimate estimateCmd `cmd:"" help:"Estimate the memory and disk of each way to fine-tune a model."`
	Setup    configCmd   `cmd:"" name:"config" help:"Write Accelerate's configuration file for train launch."`
	Env      envCmd      `cmd:"" help:"Print the environment, for bug reports."`
	Test     testCmd     `cmd:"" help:"Check that training works on this machine."`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings as arguments. It returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "launch" {
		rest, program := programArgs(args[1:])
		if noRanks(args[1:], program) {
			fmt.Fprintln(stderr, "train launch: got --num-processes 0, want at least 1, or omit the flag for the configuration's number")
			return 2
		}
		if program {
			p := cmdline.Program{Name: "train launch", Description: "Run a program with several ranks.", Grammar: new(programCmd), LookupEnv: os.LookupEnv}
			return p.Run(rest, stdout, stderr)
		}
	}
	if slices.Equal(args, []string{"launch"}) {
		fmt.Fprintln(stderr, "train launch: want PROGRAM ARGS…, or the --data and --output of a fine-tuning run (see train launch --help)")
		return 2
	}
	args = allDashed(args)
	c := new(cli)
	if slices.Contains(args, "launch") && args[0] != "help" {
		args, c.Launch.args = runArgs(args)
	}
	p := cmdline.Program{Name: "train", Version: "heft " + version, Description: "Fine-tune the models that serve runs.", Hints: hints, Grammar: c, LookupEnv: os.LookupEnv}
	return p.Run(args, stdout, stderr)
}

// allDashed returns args with dashes in the names of flags, which Accelerate and TRL write with underscores.
func allDashed(args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		args[i] = dashed(arg)
	}
	return args
}

// dashed returns arg with dashes in the name of the flag, if it is one.
func dashed(arg string) string {
	if name, _, _ := strings.Cut(arg, "="); strings.HasPrefix(name, "--") {
		return strings.ReplaceAll(name, "_", "-") + arg[len(name):]
	}
	return arg
}
