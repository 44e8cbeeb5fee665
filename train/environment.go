package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/internal/collective/mpi"
	"github.com/heftai/heft/internal/collective/tcp"
	"github.com/heftai/heft/internal/errtext"
	"github.com/heftai/heft/internal/filehash"
)

// Transport carries messages between the ranks of a world, for [NewWorld].
//
// Messages from one rank to another arrive complete and in order. Send may be called for several
// ranks at once, and together with Receive. When a rank fails or leaves, calls that wait for it must
// return an error.
type Transport interface {
	Rank() int
	Size() int
	// Send sends b to a rank. It must not keep b.
	Send(ctx context.Context, to int, b []byte) error
	// Receive fills b with the next message of a rank. It fails if that has another length.
	Receive(ctx context.Context, from int, b []byte) error
	// Fail tells the other ranks that this one has failed with err.
	Fail(err error)
}

// NewWorld makes a world of a custom transport. The context limits how long Prepare waits.
func NewWorld(ctx context.Context, t Transport) *World {
	return &World{comm: collective.Over(t), ctx: ctx, local: t.Rank()}
}

// ErrNoEnvironment is returned if no launcher's variables are set.
var ErrNoEnvironment = errors.New("train: RANK and WORLD_SIZE are not set: start the program with train launch or torchrun")

// FromEnvironment joins the world that a launcher describes, one process for each rank:
//
//   - train launch, torchrun or a job's manifest: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR (127.0.0.1)
//     and MASTER_PORT (29500). HEFT_RUN_TOKEN is the run's secret; without it MASTER_ADDR must be a
//     loopback address.
//   - Open MPI's mpirun, or srun --mpi=pmix, in builds with tag mpi. Messages are MPI's, and need no
//     token.
//   - Slurm's srun: SLURM_PROCID, SLURM_STEP_NUM_TASKS and SLURM_LOCALID. The first node of the step is
//     MASTER_ADDR, and the job's number gives MASTER_PORT, unless these are set.
//
// Without any of them the world has one rank.
//
// It returns when all ranks are connected, and fails after five minutes. It rejects a process
// without the token and continues to wait. A rank of another build or another world ends the wait
// with an error. Both are named by their address. Close the world at the end:
//
//	world, err := train.FromEnvironment(ctx)
//	if err != nil {
//		return err
//	}
//	return world.Close(fit(world.Context(), world))
func FromEnvironment(ctx context.Context) (*World, error) {
	if launcherOf(os.Getenv) == noLauncher {
		return &World{ctx: ctx}, nil
	}
	return LaunchFromTorch(ctx)
}

// Launched returns the number of ranks of the world that [FromEnvironment] joins, and how many of
// them are on this machine, according to the launcher's variables. It returns 0 and 0 without a
// launcher, and for a step of srun or mpirun with one task, such as a shell.
func Launched() (ranks, here int, err error) { return launched(os.Getenv) }

// LaunchFromTorch is like [FromEnvironment], but returns [ErrNoEnvironment] instead of a world of
// one rank.
func LaunchFromTorch(ctx context.Context) (*World, error) {
	launcher := launcherOf(os.Getenv)
	if launcher == noLauncher {
		return nil, ErrNoEnvironment
	}
	program, err := build()
	if err != nil {
		return nil, fmt.Errorf("train: build of this program: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var w *World
	if launcher == mpiLauncher {
		w, err = overMPI(ctx, cancel, program)
	} else {
		w, err = overTCP(ctx, cancel, program, launcher)
	}
	if err != nil {
		cancel(err)
		return nil, fmt.Errorf("train: %w", errtext.Below("train", err))
	}
	return w, nil
}

// overTCP joins the ranks that connect to MASTER_ADDR.
func overTCP(ctx context.Context, cancel context.CancelCauseFunc, program string, launcher launcher) (*World, error) {
	get := os.Getenv
	if launcher == slurmLauncher {
		get = slurm(os.Getenv)
	}
	o, local, err := environment(get)
	if err != nil {
		return nil, err
	}
	o.Build, o.OnFail = program, cancel
	o.Warn = func(line string) { slog.Warn("train: " + line) }
	l, err := tcp.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return worldOf(ctx, cancel, l, local), nil
}

// overMPI joins the ranks that an MPI launcher started.
func overMPI(ctx context.Context, cancel context.CancelCauseFunc, program string) (*World, error) {
	l, err := mpi.Open(cancel)
	if err != nil {
		return nil, err
	}
	local, err := mpi.LocalRank(os.Getenv, l.Rank())
	if err != nil {
		l.Close(err)
		return nil, err
	}
	w := worldOf(ctx, cancel, l, local)
	builds, err := collective.AllGather(ctx, w.comm, program)
	for rank, other := range builds {
		if err == nil && other != program {
			err = fmt.Errorf("rank %d is another build (%.12s, here %.12s): start the same program on all machines", rank, other, program)
		}
	}
	if err != nil {
		return nil, w.Close(err)
	}
	return w, nil
}

// worldOf returns the world of a link. Closing the link leaves the world.
func worldOf(ctx context.Context, cancel context.CancelCauseFunc, l interface {
	collective.Link
	Close(err error)
}, local int) *World {
	return &World{comm: collective.Over(l), ctx: ctx, local: local, close: func(err error) {
		l.Close(err)
		cancel(err)
	}}
}

// environment reads torchrun's variables.
func environment(get func(string) string) (o tcp.Options, local int, err error) {
	number := func(name string, missing int) int {
		text := get(name)
		if text == "" && missing >= 0 {
			return missing
		}
		n, e := strconv.Atoi(text)
		if (e != nil || n < 0) && err == nil {
			err = fmt.Errorf("%s: got %q, want a number", name, text)
		}
		return n
	}
	o.Rank, o.Size = number("RANK", -1), number("WORLD_SIZE", -1)
	local = number("LOCAL_RANK", max(0, o.Rank))
	port := number("MASTER_PORT", 29500)
	if get("TORCHELASTIC_USE_AGENT_STORE") == "True" {
		port++ // torchrun itself listens at MASTER_PORT
	}
	if err != nil {
		return o, 0, err
	}
	if o.Size < 1 || o.Rank >= o.Size {
		return o, 0, fmt.Errorf("got RANK %d and WORLD_SIZE %d, want 0 to WORLD_SIZE-1", o.Rank, o.Size)
	}
	host := get("MASTER_ADDR")
	if host == "" {
		host = "127.0.0.1"
	}
	o.Token = get("HEFT_RUN_TOKEN")
	if o.Token == "" && !tcp.Loopback(host) {
		return o, 0, fmt.Errorf("MASTER_ADDR is %s, which other machines reach: set HEFT_RUN_TOKEN to the same secret for all ranks", host)
	}
	o.Address = tcp.Join(host, port)
	return o, local, nil
}

// build returns the digest of the program's file.
var build = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filehash.SHA256(path)
})
