package finetune

import (
	"context"
	"errors"
	"os"
	"runtime"

	"github.com/heftai/heft/train"
)

// findWorld determines the number of ranks. If a launcher has set its variables, this process is
// one rank.
func (j *job) findWorld() error {
	ranks, here, err := train.Launched()
	if err != nil {
		return misuse(err)
	}
	if ranks == 0 {
		if err := CheckRanks(j.NumProcesses); err != nil {
			return err
		}
		j.ranks = max(1, j.NumProcesses)
		j.here = j.ranks
		return nil
	}
	if j.NumProcesses != 0 && j.NumProcesses != ranks {
		return misusef("got --num-processes %d, but a launcher has started %d ranks: omit the flag", j.NumProcesses, ranks)
	}
	j.process, j.ranks, j.here = true, ranks, here
	if os.Getenv("GOMAXPROCS") != "" && j.threads == 0 { // the launcher has divided the processors
		j.threads = runtime.GOMAXPROCS(0)
	}
	return nil
}

// ranksPerProcessor limits the ranks of a machine. Counting processors as at least 8 lets small
// machines test large worlds.
const ranksPerProcessor = 4

// CheckRanks returns a [UsageError] if a machine is to run many more ranks than it has processors.
func CheckRanks(ranks int) error {
	if most := ranksPerProcessor * max(8, runtime.NumCPU()); ranks > most {
		return misusef("got %d ranks for this machine, whose number of processors is %d, want at most %d: use a smaller --num-processes, or more machines", ranks, runtime.NumCPU(), most)
	}
	return nil
}

// sharing returns a rank's plugin for --plugin.
func (c *job) sharing(w *train.World) train.Plugin {
	switch c.Plugin {
	case "zero1":
		return &train.LowLevelZeroPlugin{World: w, Stage: 1}
	case "zero2":
		return &train.LowLevelZeroPlugin{World: w, Stage: 2}
	case "gemini":
		return &train.GeminiPlugin{World: w, EnableGradientAccumulation: true}
	}
	return &train.TorchDDPPlugin{World: w, ShareMemory: true}
}

// runProcess runs this process's rank. Rank 0 owns the output folder.
func (j *job) runProcess(ctx context.Context) error {
	world, err := train.FromEnvironment(ctx)
	if err != nil {
		return err
	}
	j.result.Rank = world.Rank()
	err = j.joined(world)
	interrupted := errors.Is(err, errInterrupted)
	if interrupted {
		err = nil // the other ranks stop by themselves
	}
	if err = world.Close(err); interrupted {
		err = errInterrupted
	}
	return err
}

func (j *job) joined(world *train.World) error {
	ctx := world.Context()
	if world.Rank() == 0 {
		unlock, err := j.open()
		if err != nil {
			return err
		}
		defer unlock()
	}
	acc, err := train.New(train.Config{World: world, Logger: j.log})
	if err != nil {
		return err
	}
	if err := acc.WaitForEveryone(ctx); err != nil { // until the folder is ready
		return err
	}
	if err := j.read(); err != nil {
		return err
	}
	if world.Rank() == 0 {
		if err := j.claim(); err != nil {
			return err
		}
	}
	j.start(ctx, j.threads)
	return j.rank(ctx, world)
}
