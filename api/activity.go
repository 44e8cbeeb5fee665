package api

import (
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine/holder"
)

const (
	// activityPeriod is the time between two readings of a stream of GET /activity.
	activityPeriod = 250 * time.Millisecond
	// mostWatchers is the maximum number of streams of GET /activity that a handler serves at once.
	mostWatchers = 64
)

// activityReport is the body of GET /activity, and of each event of its stream. Counters only grow:
// a client computes rates from two reports and the seconds between them.
type activityReport struct {
	Seconds float64         `json:"seconds"` // since the handler was made
	Models  []modelActivity `json:"models"`
}

// modelActivity describes one base model.
type modelActivity struct {
	Model           string   `json:"model"`
	Adapters        []string `json:"adapters,omitempty"`
	Status          string   `json:"status"` // loading, ready or draining
	Running         int      `json:"running"`
	Waiting         int      `json:"waiting"`
	PromptTokens    int64    `json:"prompt_tokens"`
	GeneratedTokens int64    `json:"generated_tokens"`

	KV struct {
		PageTokens  int `json:"page_tokens"`
		Pages       int `json:"pages"`
		UsedPages   int `json:"used_pages"`
		CachedPages int `json:"cached_pages"` // the part of them that future prompts may reuse
	} `json:"kv"`
	Memory struct {
		LimitBytes int64            `json:"limit_bytes"`
		HeldBytes  map[string]int64 `json:"held_bytes"`
	} `json:"memory"`

	Tiers []tierActivity `json:"tiers"`
	// Blocks are sent only in the first event of a stream, and after models were loaded or
	// unloaded. Runs and ReadBytes have the same order.
	Blocks    []dispatch.BlockSize `json:"blocks,omitempty"`
	Runs      []int64              `json:"runs"`
	ReadBytes []int64              `json:"read_bytes"`
}

// tierActivity has the weight bytes of a tier, and the bytes that passes have read from it. Reads
// of a GPU are not counted.
type tierActivity struct {
	Tier      devicemap.Device `json:"tier"`
	Bytes     int64            `json:"bytes"`
	ReadBytes int64            `json:"read_bytes"`
}

// activities serves GET /activity.
type activities struct {
	service *service
	begin   time.Time
	period  time.Duration
	watched atomic.Int32
}

// serve writes one report, or with ?stream=true a stream of server-sent events. The stream has an
// event for each period in which a counter changed. Without clients no counters are read.
func (a *activities) serve(fail failure) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if f := wire.DescriptionOf(r.Context()); f != nil {
			f.Bool("stream", new(bool))
			return
		}
		switch stream := r.URL.Query().Get("stream"); stream {
		case "", "false":
			writeJSON(w, http.StatusOK, a.report(true))
			return
		case "true":
		default:
			fail(w, r, wire.Invalidf("stream", "stream is %q, want true or false.", stream))
			return
		}
		defer a.watched.Add(-1)
		if a.watched.Add(1) > mostWatchers {
			w.Header().Set("Retry-After", "10")
			fail(w, r, &wire.Error{Kind: wire.Unavailable, Message: "Too many clients watch the activity."})
			return
		}
		a.stream(w, r)
	}
}

// stream sends events until the client disconnects or the server drains.
func (a *activities) stream(w http.ResponseWriter, r *http.Request) {
	events := wire.NewEvents(w)
	last, moved := a.report(true), true
	if events.Send(last) != nil {
		return
	}
	tick := time.NewTicker(a.period)
	defer tick.Stop()
	for sent := time.Now(); !a.service.models.Draining(); {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		now := a.report(false)
		if !sameModels(last, now) {
			now = a.report(true)
		}
		moves := !same(last, now)
		var err error
		switch {
		case moves || moved: // one more event after the last change, so that rates fall to 0
			err = events.Send(now)
			sent = time.Now()
		case time.Since(sent) >= wire.KeepAlive:
			err = events.Line(": idle")
			sent = time.Now()
		}
		if err != nil {
			return
		}
		last, moved = now, moves
	}
}

// sameModels reports whether no model was loaded or unloaded between two reports.
func sameModels(a, b activityReport) bool {
	return slices.EqualFunc(a.Models, b.Models, func(x, y modelActivity) bool { return x.Model == y.Model })
}

// same reports whether no counter has changed between two reports.
func same(a, b activityReport) bool {
	return slices.EqualFunc(a.Models, b.Models, func(x, y modelActivity) bool {
		x.Blocks, y.Blocks = nil, nil
		return reflect.DeepEqual(x, y)
	})
}

// report reads the counters of all models. If blocks is set, it includes their blocks.
func (a *activities) report(blocks bool) activityReport {
	out := activityReport{Seconds: time.Since(a.begin).Seconds(), Models: []modelActivity{}}
	adapters := map[string][]string{}
	for _, k := range a.service.models.Known() {
		if k.Parent != "" {
			adapters[k.Parent] = append(adapters[k.Parent], k.Name)
		}
	}
	a.service.models.Each(func(m *generate.Model, _ func() any) {
		out.Models = append(out.Models, a.service.activityOf(m, adapters[m.Name], blocks))
	})
	return out
}

// tiersOf returns the tiers that hold weights: GPUs, host memory, the disk. Reads of a GPU are not
// counted.
func tiersOf(st dispatch.Status, did dispatch.Activity) []tierActivity {
	tiers := []tierActivity{}
	for _, u := range st.Devices {
		tiers = append(tiers, tierActivity{Tier: u.Device, Bytes: u.WeightBytes}) // of the host 0
	}
	tiers = append(tiers, tierActivity{devicemap.CPU, st.TierBytes[devicemap.CPU], did.MemoryBytes},
		tierActivity{devicemap.Disk, st.TierBytes[devicemap.Disk], did.DiskBytes})
	return slices.DeleteFunc(tiers, func(t tierActivity) bool { return t.Bytes == 0 })
}

// activityOf reads the counters of a base model.
func (o *service) activityOf(m *generate.Model, adapters []string, blocks bool) modelActivity {
	e := holder.Engine(m).Stats()
	out := modelActivity{Model: m.Name, Status: "ready", Running: e.Running, Waiting: e.Waiting, PromptTokens: e.PromptTokens,
		GeneratedTokens: e.GeneratedTokens, Tiers: []tierActivity{}, Runs: []int64{}, ReadBytes: []int64{}}
	out.KV.PageTokens, out.KV.Pages, out.KV.UsedPages, out.KV.CachedPages = e.KV.PageTokens, e.KV.Pages, e.KV.Used, e.KV.Cached
	out.Adapters = adapters
	st := o.statusOf(m)
	if d := m.Dispatched(); d != nil {
		did := d.Activity()
		out.Runs, out.ReadBytes = did.Runs, did.Read
		if blocks {
			out.Blocks = d.Blocks()
		}
		out.Tiers = tiersOf(st, did)
	}
	out.Memory.LimitBytes, out.Memory.HeldBytes = st.MemoryLimit, st.Held
	switch {
	case m.Draining():
		out.Status = "draining"
	case !st.Loading.Done && !o.Lazy:
		out.Status = "loading"
	}
	return out
}
