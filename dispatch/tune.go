package dispatch

import (
	"context"
	"log/slog"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/kernels/tune"
	"github.com/heftai/heft/internal/probe"
)

// TuneReads measures how this machine reads weights fastest: how many rows at once, and with or
// without software prefetch. It uses the result that an earlier process stored in folder for this
// processor model, variant and number of threads. Otherwise it measures for about 30 ms in the
// background and stores the result. With folder "" it stores nothing. The choice holds for all
// models of the process and does not change a bit of any result.
//
// If weights are on the disk tier, it also measures how many reads in flight, and of what size,
// the disk serves fastest. That takes 320 ms and is stored for each disk. With Options.Lazy it
// only uses a stored result.
//
// [Open], [OpenFS] and [LoadCheckpointAndDispatch] have done the first part already. Call
// TuneReads before [Model.Warm], at most once. With less than 512 MiB for the cpu, the default
// for the processor's vendor stays. The channel is closed once the choice is made. [Model.Close]
// waits for that.
func (m *Model) TuneReads(ctx context.Context, folder string) <-chan struct{} {
	if m.tuned != nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	ctx, m.stopTuning = context.WithCancel(ctx)
	o := tune.Options{Variant: m.variant, Threads: m.settings.Threads, Ledger: m.ledger, StoredOnly: !m.settings.RoomToTune()}
	m.tuned = m.tuneDisk(ctx, folder, (&tune.Store{Folder: folder}).Start(ctx, o))
	return m.tuned
}

// tuneDisk sets the depth and size of reads, after the measurement that closes after. The
// returned channel is closed when it is done.
func (m *Model) tuneDisk(ctx context.Context, folder string, after <-chan struct{}) <-chan struct{} {
	files := filesOf(m.checkpoint)
	if m.weights.Stats().TierBytes[devicemap.Disk] == 0 || len(files) == 0 {
		return after
	}
	use := func(r *probe.DiskRate) {
		m.options.Ledger.mover.Tune(inFlight(r.Depth, r.RequestBytes), r.RequestBytes)
	}
	if r := probe.KeptDisk(folder, files[0]); r != nil {
		use(r)
		return after
	}
	if !m.settings.RoomToTune() || m.settings.Lazy {
		return after
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-after
		r, err := probe.Disk(ctx, probe.Options{Files: files, Ledger: m.ledger})
		if err != nil || ctx.Err() != nil {
			return // a file that cannot be read fails its first request
		}
		use(r)
		if err := probe.KeepDisk(folder, r); err != nil {
			slog.Warn("the disk's rate cannot be kept; the next start measures again", "error", err)
		}
	}()
	return done
}

// tuneOpened measures how this machine reads weights fastest before [Open] and its variants
// return: see [Options.MeasurementsDir].
func (m *Model) tuneOpened() {
	if m.settings.MeasurementsDir == "none" {
		return
	}
	folder := m.settings.Measurements() // none in a test, which leaves nothing in the cache of the user who runs it
	o := tune.Options{Variant: m.variant, Threads: m.settings.Threads, Ledger: m.ledger, StoredOnly: !m.settings.RoomToTune()}
	(&tune.Store{Folder: folder}).Ensure(context.Background(), o)
}

// stopTune waits for the end of TuneReads.
func (m *Model) stopTune() {
	if m.tuned != nil {
		m.stopTuning()
		<-m.tuned
	}
}

// inFlight returns the number of band reads that keep as many bytes in flight as depth reads of
// request bytes.
func inFlight(depth int, request int64) int {
	if request <= placement.MostBand {
		return depth
	}
	return int((int64(depth)*request + placement.MostBand - 1) / placement.MostBand)
}
