package train

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/internal/collective/tcp"
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

// NewWorld makes a world of a transport of one's own. The context bounds what Prepare waits for.
func NewWorld(ctx context.Context, t Transport) *World {
	return &World{comm: collective.Over(t), ctx: ctx, local: t.Rank()}
}

// ErrNoEnvironment says that the variables of torchrun are not set.
var ErrNoEnvironment = errors.New("train: RANK and WORLD_SIZE are not set: start the program with train launch or torchrun")

// FromEnvironment joins the world that train launch, torchrun or a job's manifest describes, one
// process for each rank: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR (127.0.0.1) and MASTER_PORT
// (29500). HEFT_RUN_TOKEN is the run's secret; without it MASTER_ADDR must be a loopback address.
// Without RANK and WORLD_SIZE the world has one rank.
//
// It returns when all ranks are connected, and fails after five minutes. A process without the token
// is refused and the wait continues; a rank of another build or another world ends it. Both are
// named by their address. Close the world at the end:
//
//	world, err := train.FromEnvironment(ctx)
//	if err != nil {
//		return err
//	}
//	return world.Close(fit(world.Context(), world))
func FromEnvironment(ctx context.Context) (*World, error) {
	if os.Getenv("RANK") == "" && os.Getenv("WORLD_SIZE") == "" {
		return &World{ctx: ctx}, nil
	}
	return LaunchFromTorch(ctx)
}

// LaunchFromTorch is [FromEnvironment], but returns [ErrNoEnvironment] where that makes a world of
// one rank.
func LaunchFromTorch(ctx context.Context) (*World, error) {
	if os.Getenv("RANK") == "" && os.Getenv("WORLD_SIZE") == "" {
		return nil, ErrNoEnvironment
	}
	o, local, err := environment(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	if o.Build, err = build(); err != nil {
		return nil, fmt.Errorf("train: build of this program: %w", err)
	}
	o.Warn = func(line string) { slog.Warn("train: " + line) }
	ctx, cancel := context.WithCancelCause(ctx)
	o.OnFail = cancel
	l, err := tcp.Connect(ctx, o)
	if err != nil {
		cancel(err)
		return nil, fmt.Errorf("train: %w", err)
	}
	return &World{comm: collective.Over(l), ctx: ctx, local: local, close: func(err error) {
		l.Close(err)
		cancel(err)
	}}, nil
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
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
})
