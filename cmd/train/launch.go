package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/heftai/heft/internal/cmdline"
)

// launchCmd is train launch with the flags of train run. Its ranks are processes.
type launchCmd struct {
	worldFlags
	runCmd

	args []string // of the command line, for the ranks
}

// runArgs converts the arguments of a train launch without a program to those of the ranks' train
// run. It also returns the arguments of train launch, without "run" if they are train launch run.
func runArgs(args []string) (launch, ranks []string) {
	command := false // launch was seen; "run" may follow
	for i := 0; i < len(args); i++ {
		n := launchFlag(args[i:])
		switch {
		case n > 0:
			launch = append(launch, args[i:i+n]...)
			i += n - 1
		case args[i] == "launch" && !command:
			command = true
			launch, ranks = append(launch, "launch"), append(ranks, "run")
		case args[i] == "run" && command && len(ranks) > 0 && ranks[len(ranks)-1] == "run":
		default:
			launch, ranks = append(launch, args[i]), append(ranks, args[i])
		}
	}
	return launch, ranks
}

// Run is train run with one process per rank. The ranks and the precision default to those of
// Accelerate's configuration.
func (c *launchCmd) Run(ctx context.Context, out cmdline.Output, diag cmdline.Diagnostics) error {
	found, err := c.configuration()
	if err != nil {
		return err
	}
	env, err := c.takeDefaults(found)
	if err != nil {
		return err
	}
	if err := c.settle(found, &c.NumProcesses); err != nil {
		return err
	}
	if c.NumProcesses == 1 {
		return c.runCmd.Run(ctx, out, diag)
	}
	if err := c.check(); err != nil { // once, not on every rank
		return err
	}
	if _, err := c.folder(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return c.start(c.NumProcesses, append([]string{self}, c.args...), env, true, out, diag)
}

// takeDefaults sets flags that are not given from the configuration. It also returns them as
// environment variables for the ranks.
func (c *launchCmd) takeDefaults(found config) (env []string, err error) {
	if found == nil {
		return nil, nil
	}
	set := func(name string, value any) { env = append(env, fmt.Sprintf("HEFT_%s=%v", name, value)) }
	if c.MixedPrecision == "" {
		c.MixedPrecision = found.precision()
		set("MIXED_PRECISION", c.MixedPrecision)
	}
	if !slices.Contains([]string{"no", "bf16", "fp16"}, c.MixedPrecision) {
		return nil, cmdline.Misusef("mixed_precision of the configuration: got %s, want no, bf16 or fp16", c.MixedPrecision)
	}
	z := found.zero()
	if c.Plugin == "ddp" && z.plugin != "ddp" {
		c.Plugin = z.plugin
		set("PLUGIN", c.Plugin)
	}
	if c.GradientAccumulationSteps == 1 && z.accumulation > 1 {
		c.GradientAccumulationSteps = z.accumulation
		set("GRADIENT_ACCUMULATION_STEPS", z.accumulation)
	}
	if c.MaxGradNorm == 1 && z.clipping > 0 {
		c.MaxGradNorm = z.clipping
		set("MAX_GRAD_NORM", z.clipping)
	}
	return env, nil
}
