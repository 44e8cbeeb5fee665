// Command serve serves language models that are bigger than the memory they run on.
//
//	serve [--model M] [--device-map auto] …   answer OpenAI requests
//	serve chat [M]                            chat in the terminal, with a model or a running server
//	serve batch FILE.jsonl                    answer a file of requests
//	serve ps                                  show the models and requests of a running server
//	serve plan M                              show where the model's layers would live
//	serve estimate M                          what memory it takes, dtype by dtype
//	serve bench M                             measure prompt and decode speed
//	serve pull ORG/NAME                       fetch a model from the hub into its cache
//	serve list                                show the models in the cache
//	serve rm ORG/NAME                         delete a model from the cache
//	serve devices                             what this machine has to run models on
//
// This package reads flags, HEFT_* variables and the file of --config, turns them into
// values, wires the packages together and stops them in order. It is the only reader of
// the environment. Use errors end with status 2, all others with 1.
package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/internal/cmdline"
)

// version is set by the release build.
var version = "0.1.0-dev"

// cli is the command line.
type cli struct {
	Config      kong.ConfigFlag  `help:"Read flags from a YAML file." placeholder:"FILE.yaml" env:"HEFT_CONFIG"`
	ShowVersion kong.VersionFlag `name:"version" env:"-" help:"Print the version and exit."`

	Run   runCmd   `cmd:"" default:"withargs" help:"Serve a model. This is the default command."`
	Chat  chatCmd  `cmd:"" set:"model=Chat with this folder, file or ORG/NAME[@REVISION] (default: a demo)" help:"Chat with a model, or with a running server, in the terminal."`
	Batch batchCmd `cmd:"" help:"Answer a JSONL file of requests in the format of OpenAI's batches."`
	Ps    psCmd    `cmd:"" help:"Show the models and requests of a running server."`
	Plan  planCmd  `cmd:"" set:"model=Plan this folder, file or ORG/NAME[@REVISION] (default: a demo)" help:"Show where a model's layers would live, without loading it."`
	Bench benchCmd `cmd:"" set:"model=Measure this folder, file or ORG/NAME[@REVISION] (default: a demo)" help:"Measure prompt and decode speed of a model."`
	Pull  pullCmd  `cmd:"" set:"model=Download this ORG/NAME[@REVISION][:TYPE]; TYPE selects a GGUF file" help:"Download a model from the hub into the hub's cache."`
	List  listCmd  `cmd:"" aliases:"ls" help:"List the models in the cache."`
	Rm    rmCmd    `cmd:"" set:"model=Delete this ORG/NAME[@REVISION]" aliases:"remove" help:"Delete a model or one of its revisions from the cache."`

	Estimate estimateCmd `cmd:"" set:"model=Estimate this folder, file or ORG/NAME[@REVISION] (default: a demo)" help:"Estimate the memory of a model in each dtype."`
	Devices  devicesCmd  `cmd:"" help:"Show this machine's processors, memory, GPUs and kernels."`

	Version    versionCmd    `cmd:"" help:"Print the version."`
	Completion completionCmd `cmd:"" help:"Print a completion script for bash, zsh or fish."`
}

type versionCmd struct{}

func (versionCmd) Run(out cmdline.Output) error {
	_, err := fmt.Fprintln(out, "heft", version)
	return err
}

func main() { os.Exit(logged(os.Args[1:])) }

// logged is run for a process of its own, whose log has one format in all commands.
func logged(args []string) int {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	return run(args, os.Stdout, os.Stderr)
}

// run is main with its surroundings as arguments. It returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	p := cmdline.Program{
		Name: "serve", Version: "heft " + version, Description: "Serve language models that are bigger than the memory they run on.",
		Grammar: new(cli), Hints: hints, LookupEnv: os.LookupEnv,
	}
	return p.Run(args, stdout, stderr)
}
