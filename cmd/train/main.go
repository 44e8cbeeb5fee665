// Command train fine-tunes the models that serve answers with.
//
//	train run --model DIR --data FILE.jsonl --output DIR   fine-tune a model
//	train launch …            the same, with the ranks of Accelerate's configuration
//	train bench --model DIR   measure the speed of a training step
//	train config              write that configuration
//	train test                check that training works on this machine
//	train env                 print what a report of a problem should say
//
// This package reads flags, HEFT_* variables and the file of --config, turns them into
// values and wires the packages together. Use errors end with status 2, all others with 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
)

// cli is the command line.
type cli struct {
	Config kong.ConfigFlag `help:"Read flags from a YAML file." placeholder:"FILE.yaml" env:"HEFT_CONFIG"`

	Run    runCmd    `cmd:"" help:"Fine-tune a model on text, with or without an adapter."`
	Launch launchCmd `cmd:"" help:"The same with the ranks and the precision of Accelerate's configuration."`
	Bench  benchCmd  `cmd:"" help:"Measure the speed of a training step: forward, backward and AdamW."`
	Setup  configCmd `cmd:"" name:"config" help:"Write the configuration that launch reads: Accelerate's file."`
	Env    envCmd    `cmd:"" help:"Print what a report of a problem should say."`
	Test   testCmd   `cmd:"" help:"Check that training works on this machine."`
}

// output is standard output, injected into the commands.
type output struct{ io.Writer }

// diagnostics is standard error, injected into the commands.
type diagnostics struct{ io.Writer }

// useError is a mistake in the command line, found after parsing.
type useError struct{ err error }

func (e useError) Error() string { return e.err.Error() }
func (e useError) Unwrap() error { return e.err }

func useErrorf(format string, args ...any) error { return useError{fmt.Errorf(format, args...)} }

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings as arguments. It returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	var c cli
	status := -1
	parser, err := kong.New(&c,
		kong.Name("train"),
		kong.Description("Fine-tune the models that serve answers with."),
		kong.Configuration(yamlResolver),
		kong.DefaultEnvars("HEFT"),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { status = code }),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.BindTo(context.Background(), (*context.Context)(nil)),
		kong.Bind(output{stdout}, diagnostics{stderr}),
	)
	if err != nil {
		fmt.Fprintln(stderr, "train:", err)
		return 1
	}
	parsed, err := parser.Parse(args)
	if status >= 0 {
		return status // --help
	}
	if err != nil {
		fmt.Fprintf(stderr, "train: %v (see train --help)\n", err)
		return 2
	}
	err = parsed.Run()
	var use useError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &use):
		fmt.Fprintln(stderr, "train:", err)
		return 2
	default:
		fmt.Fprintln(stderr, "train:", err)
		return 1
	}
}
