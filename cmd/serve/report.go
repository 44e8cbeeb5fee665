package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
)

// A reporter answers GET /plan without delay. It measures the machine in the background once the
// model is loaded and the server has been idle for a moment. A request interrupts the measurement,
// which is repeated later. No speeds are predicted before it is complete.
type reporter struct {
	name   string // of the model
	model  *dispatch.Model
	asked  dispatch.Options // from which the plan was made
	probe  func(context.Context) (dispatch.MachineSpeed, error)
	busy   func() bool // weights load or requests run
	settle time.Duration

	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	report *dispatch.Report
}

const (
	// leastRoom is the memory in bytes that the probe may always use, out of the runtime's share.
	leastRoom = 32 << 20
	// settled is how long the server must be idle before the machine is measured.
	settled = 500 * time.Millisecond
	// glance is the interval at which a measurement checks for requests.
	glance = 5 * time.Millisecond
)

// newReporter returns a reporter of a model with the given plan, made for the options asked.
func newReporter(l *loaded, plan devicemap.Plan, asked dispatch.Options) *reporter {
	model, g := l.model, l.generator
	host := plan.Device(devicemap.CPU)
	room := max(host.LimitBytes-host.Used(), leastRoom) // bytes that the plan leaves free
	report := dispatch.NewReport(plan)
	report.MaxModelLen = model.KV().Capacity
	model.Expect(report.Predicted)
	return &reporter{
		name: l.name, model: model, asked: asked, settle: settled, report: report,
		probe: func(ctx context.Context) (dispatch.MachineSpeed, error) {
			if model.Status().MemoryLimit < host.LimitBytes { // the limit has fallen
				return model.Probe(ctx, leastRoom)
			}
			return model.Probe(ctx, room)
		},
		busy: func() bool {
			load, work := model.Status(), g.Sequences()
			loading := !load.Loading.Done || !load.Promoted && load.PromoteErr == nil
			return loading || work.Running+work.Waiting > 0
		},
	}
}

// start starts waiting for an idle moment to measure in.
func (r *reporter) start() {
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		for r.quiet(ctx) && !r.measure(ctx) {
		}
	}()
}

// close stops a measurement and waits for its end. Afterwards the reporter does not use the model.
func (r *reporter) close() {
	if r.stop != nil {
		r.stop()
		<-r.done
	}
}

// quiet waits until the server has been idle for a while. It returns false if ctx ends first.
func (r *reporter) quiet(ctx context.Context) bool {
	for since := time.Now(); ; {
		if r.busy() {
			since = time.Now()
		} else if time.Since(since) >= r.settle {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(r.settle / 4):
		}
	}
}

// measure probes the machine and predicts speeds. It returns false if a request interrupted it.
func (r *reporter) measure(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			if r.busy() {
				cancel()
			}
			time.Sleep(glance)
		}
	}()
	speeds, err := r.probe(ctx)
	disturbed := ctx.Err() != nil
	cancel()
	<-watched
	if disturbed {
		return false
	}
	next := *r.report
	predict(&next, dispatch.NewPlanner(r.model.Skeleton()), r.asked, loadedAs(r.model.LoadedAs(), r.asked.DeviceMap.DType), known(speeds, err))
	r.model.Expect(next.Predicted)
	r.mu.Lock()
	r.report = &next
	r.mu.Unlock()
	noteSpeeds(r.name, &next)
	return true
}

// noteStreaming logs how much each token reads from the disk, and the flags of which each alone
// would keep all weights in memory.
func noteStreaming(model string, r *dispatch.Report) {
	if r.Plan.DiskBytesPerToken == 0 {
		return
	}
	about := []any{"model", model, "token_reads", devicemap.FormatSize(r.Plan.DiskBytesPerToken)}
	if flags := fitFlags(r.FitsWith); flags != nil {
		about = append(about, "all_fit_with", strings.Join(flags, ", or "))
	}
	slog.Info("weights stream from the disk", about...)
}

// noteSpeeds logs the predicted speed of a model that streams, and what would make it faster.
func noteSpeeds(model string, r *dispatch.Report) {
	speed := r.Predicted.TokensPerSecond
	if r.Plan.DiskBytesPerToken == 0 || speed == nil {
		return
	}
	about := []any{"model", model, "tokens_per_second", figure(*speed)}
	if choices := helpChoices(r); choices != nil {
		about = append(about, "faster_with", strings.Join(choices, "; "))
	}
	slog.Info("predicted for this machine", about...)
}

// now returns the current plan, with predicted speeds and those measured so far.
func (r *reporter) now() any {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.report.With(r.model.Measured())
	if plan, differs := r.model.PlanNow(); differs {
		load := out.Predicted.LoadSeconds
		out.Plan, out.Predicted = plan, dispatch.NewReport(plan).Predicted
		if out.Probed != nil {
			out.Predicted = dispatch.Predict(r.model.Skeleton(), plan, loadedAs(r.model.LoadedAs(), r.asked.DeviceMap.DType), *out.Probed)
		}
		out.Predicted.LoadSeconds = load
	}
	out.DeviceUse = r.model.DeviceUse()
	return out
}
