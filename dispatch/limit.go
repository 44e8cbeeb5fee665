package dispatch

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/pressure"
	"github.com/heftai/heft/internal/topology"
)

// limited is the state of a model's memory limit. The mutex guards the fields that are not
// atomic; it is held while the limit changes. Numbers are bytes of the host's memory.
type limited struct {
	sync.Mutex
	now           atomic.Int64           // the limit that was set last, or the share; 0 is that of the plan
	target        int64                  // the limit without share; 0 is that of the plan
	share         int64                  // see SetMemoryShare; 0 is none
	least         shares                 // minimum with which the model still runs; set when it is opened
	shares        atomic.Pointer[shares] // under the limit now; nil for those of the plan
	offloaded     bool                   // by an OffloadHook, until the next pass
	convertsAgain bool                   // weights of the disk tier in the plan are converted in each pass
	requests      []func(bytes int64)
	stop          context.CancelFunc
	following     sync.WaitGroup
	kv            kvGrowth
	borrowed      int64        // bytes of the expert cache that activations take now
	spare         atomic.Int64 // bytes of the expert cache that they may take
}

// SetMemoryLimit changes the limit of the host's memory while the model is used. It returns the
// minimum in bytes, which the model takes at any limit. It is safe for concurrent use.
//
// If the limit falls, SetMemoryLimit evicts experts, then weights of the cpu tier. From then on
// these weights stream from the disk, and experts are used in the checkpoint's mapping. Then it
// shrinks the KV cache to one sequence, and last the memory for requests. Weights of the unit
// that computes are evicted after the unit is done.
//
// If the limit rises, weights return in the background. Above the plan's limit, weights of the
// disk tier stay in memory once they were read. Passes continue, and results stay bitwise the
// same.
func (m *Model) SetMemoryLimit(bytes int64) (minimum int64) {
	m.limit.Lock()
	defer m.limit.Unlock()
	m.limit.target = bytes
	return m.shrinkTo(bytes, 0)
}

// keptLimit returns the limit that the model keeps to, or 0 for none. If the plan's minimum
// exceeds the limit, it returns the minimum. The caller holds the lock.
func (m *Model) keptLimit() int64 {
	if n := m.limit.now.Load(); n > 0 {
		return n
	}
	host := m.plan.Device(devicemap.CPU)
	if host.LimitBytes == 0 {
		return 0
	}
	return max(host.LimitBytes, host.Used())
}

// shrinkTo divides bytes, or the model's share if that is less, among the model's memory, and
// frees the excess. Weights and lent memory get slack bytes less. It returns the minimum. The
// caller holds the lock.
func (m *Model) shrinkTo(bytes, slack int64) (minimum int64) {
	host, least := m.plan.Device(devicemap.CPU), m.limit.least
	if m.limit.share > 0 && m.limit.share < bytes {
		bytes, least = m.limit.share, m.leastOfShare()
	}
	var held int64
	if m.cache != nil {
		_, used := m.cache.PageMemory()
		held = max(int64(used)*m.cache.PageBytes(), m.limit.kv.bytes)
		host.KVBytes = max(host.KVBytes, m.limit.kv.bytes)
	}
	to := sharesUnder(host, least, held, bytes)
	pages, unused := m.pagesOf(to, host)
	lent := max(0, bytes-host.Used()) + unused // beyond the plan, and of the KV cache
	less := min(slack, lent)
	lent, slack = lent-less, slack-less
	m.budgetWeights(to, max(to.weights-slack, least.weights), to.weights == host.WeightsBytes && slack == 0)
	experts := m.budgetStreams(to, host, lent)
	if m.cache != nil {
		if usable, _ := m.cache.PageMemory(); usable > pages { // the memory is free before experts take it
			m.resizeKV(pages)
		}
	}
	m.weights.ExpertBudget(experts)
	if m.cache != nil {
		m.resizeKV(pages)
	}
	for _, f := range m.limit.requests {
		f(to.requests)
	}
	m.limit.now.Store(bytes)
	return m.limit.least.sum(host)
}

// pagesOf returns the pages that the KV cache may use with these shares, and the bytes of the
// pages that it lends.
func (m *Model) pagesOf(to shares, host devicemap.DevicePlan) (pages int, lent int64) {
	if m.cache == nil {
		return 0, 0
	}
	pages = int(to.kv / m.cache.PageBytes())
	if m.limit.kv.bytes == 0 && to.kv == host.KVBytes || m.stations.of != nil { // pages of stations are not the host's
		pages = m.limit.kv.start
	}
	return m.lend(pages)
}

// budgetStreams lends memory to streamed weights: lent bytes, and the memory that activations and
// requests leave unused. It returns the budget of experts.
func (m *Model) budgetStreams(to shares, host devicemap.DevicePlan, lent int64) (experts int64) {
	var requests, scratch int64
	if m.lends() {
		requests, scratch = to.requests, m.settings.UnusedActivations(m.skeleton, m.program, &m.plan, m.activations)
	} else {
		lent = 0
	}
	fewest, planned := m.weights.ExpertBytes()
	experts = planned - (host.StagingBytes - to.staging) + m.lendToStream(lent, scratch, requests)
	m.limit.spare.Store(experts - fewest)
	return experts - m.limit.borrowed
}

// NotifyRequests calls f, in bytes, whenever the memory for requests changes with the limit. The
// calls come from the goroutine that changes the limit; f must not change it. The memory for
// requests shrinks last. NotifyRequests is safe for concurrent use.
func (m *Model) NotifyRequests(f func(bytes int64)) {
	m.limit.Lock()
	defer m.limit.Unlock()
	m.limit.requests = append(m.limit.requests, f)
}

// setOffloaded drops the copies of weights, or lets them return within the limit.
func (m *Model) setOffloaded(offloaded bool) {
	m.limit.Lock()
	defer m.limit.Unlock()
	if m.limit.offloaded == offloaded {
		return
	}
	m.limit.offloaded = offloaded
	switch now := m.limit.now.Load(); {
	case now != 0:
		m.shrinkTo(now, 0)
	case offloaded:
		m.weights.Budget(0)
	default:
		m.weights.Budget(m.fullBudget())
	}
}

// budgetWeights limits the weights to the given bytes, or to the plan's if all is set, and
// records the shares under the limit.
func (m *Model) budgetWeights(to shares, bytes int64, all bool) {
	switch {
	case m.limit.offloaded:
		m.weights.Budget(0)
		to.weights = 0
	case all:
		m.weights.Budget(m.fullBudget())
	default:
		m.weights.Budget(bytes)
		to.weights = bytes
	}
	m.limit.shares.Store(&to)
}

// resizeKV changes the number of pages that the KV cache may use, and updates the ledger.
func (m *Model) resizeKV(pages int) {
	before, _ := m.cache.PageMemory()
	after := m.cache.Resize(pages)
	m.ledger.Add(hostmem.KV, int64(after-before)*m.cache.PageBytes())
}

// memoryLimit returns the limit that was set last, or the plan's; 0 means none. It may be below
// the minimum. It is safe for concurrent use.
func (m *Model) memoryLimit() int64 {
	if n := m.limit.now.Load(); n > 0 {
		return n
	}
	return m.plan.Device(devicemap.CPU).LimitBytes
}

// endFollowing stops FollowLimits.
func (m *Model) endFollowing() {
	if m.limit.stop != nil {
		m.limit.stop()
		m.limit.following.Wait()
	}
}

// shares are the parts of the host's memory that depend on its limit, in bytes.
type shares struct{ weights, staging, kv, requests int64 }

// leastShares returns the minimum: the KV cache of one sequence, and memory for weights while
// they are read.
func (m *Model) leastShares() shares {
	host := m.plan.Device(devicemap.CPU)
	fewest, experts := m.weights.ExpertBytes()
	least := shares{weights: m.weights.LeastBudget(), staging: max(0, host.StagingBytes-(experts-fewest)),
		requests: min(host.RequestBytes, placement.LeastRequest)}
	if m.cache != nil {
		sequence := m.cache.Config().SequenceBytes(min(m.settings.Context, placement.LeastContext), m.settings.MaxBatchTokens)
		least.kv = min(sequence, host.KVBytes)
	}
	return least
}

// sum returns the host memory of a plan with these shares.
func (s shares) sum(host devicemap.DevicePlan) int64 {
	host.WeightsBytes, host.StagingBytes, host.KVBytes, host.RequestBytes = s.weights, s.staging, s.kv, s.requests
	return host.Used()
}

// sharesUnder returns the shares under a limit for the given plan. held is the part of the KV
// cache that sequences use. Pages that no sequence uses are dropped first, in proportion to the
// limit, then experts, weights, the other pages, and memory for requests.
func sharesUnder(host devicemap.DevicePlan, least shares, held, limit int64) shares {
	s := shares{weights: host.WeightsBytes, staging: host.StagingBytes, kv: host.KVBytes, requests: host.RequestBytes}
	over := host.Used() - max(limit, 0)
	take := func(from *int64, keep int64) {
		n := max(0, min(over, *from-keep))
		*from -= n
		over -= n
	}
	proportional := int64(float64(host.KVBytes) * float64(max(limit, 0)) / float64(max(host.Used(), 1)))
	take(&s.kv, max(proportional, least.kv, held))
	take(&s.staging, least.staging)
	take(&s.weights, least.weights)
	take(&s.kv, least.kv)
	take(&s.requests, least.requests)
	return s
}

// A MemoryLimit is a limit of the host's memory that [Model.FollowLimits] has found, in bytes.
type MemoryLimit struct {
	Bytes   int64 // the effective limit: the limit, or the minimum if that is more
	Minimum int64 // minimum with which the model runs
	// Short is the difference between the limit and the minimum, if the limit is below it. The
	// model then exceeds the limit.
	Short int64
}

// String returns a sentence for a log.
func (l MemoryLimit) String() string {
	if l.Short > 0 {
		return fmt.Sprintf("the memory limit is %s, below the minimum of %s: the model takes the minimum; raise the control group's limit or lower --max-model-len",
			devicemap.FormatSize(max(0, l.Minimum-l.Short)), devicemap.FormatSize(l.Minimum))
	}
	return fmt.Sprintf("the memory limit is now %s", devicemap.FormatSize(l.Bytes))
}

// FollowLimits adjusts the model to the memory limits of the process's control groups until ctx ends. It
// reads memory.max and memory.high of the group and of its parents (in version 1 their counterparts), takes
// the lowest, less what other processes of the group hold, and calls [Model.SetMemoryLimit]. It reads them
// four times a second, and more often while tasks wait for memory. Options.MaxMemory stays the upper bound;
// without it the limit may rise above that of the start.
//
// It returns at once; another goroutine follows the limits. That goroutine calls changed, if it is not
// nil, when the limit that the model keeps to has changed, and when the limit falls below the minimum.
// Call FollowLimits once; Close ends it.
func (m *Model) FollowLimits(ctx context.Context, changed func(MemoryLimit)) {
	m.follow(ctx, os.DirFS("/"), changed)
}

// follow is FollowLimits with the /proc and /sys below root.
func (m *Model) follow(ctx context.Context, root fs.FS, changed func(MemoryLimit)) {
	ctx, m.limit.stop = context.WithCancel(ctx)
	host, least := m.plan.Device(devicemap.CPU), m.limit.least
	start := max(host.LimitBytes, host.Used())
	most := start
	if !hostLimited(m.settings.MaxMemory) {
		total, _ := topology.Memory(root)
		most = max(start, total)
	}
	c := pressure.NewController(pressure.Limits{Most: most, Start: start, Least: min(least.sum(host), start)})
	var held, slack int64
	read := func() pressure.Reading {
		r := readLimits(root)
		switch held = r.Held; {
		case most == start:
		case r.Limit == 0: // what the machine had available at the start
			r.Limit = start
		default:
			_, available := topology.Memory(root)
			r.Limit = min(r.Limit, max(start, held+available))
		}
		return r
	}
	apply := func(d pressure.Decision) {
		if d.Changed {
			slack = 0
		} else if d.Target != start && !m.weights.Excess() { // the plan's estimate of the rest was too low
			slack = min(slack+max(0, held-d.Target), host.WeightsBytes)
		}
		m.limit.Lock()
		if d.Target != start || d.Changed {
			m.limit.target = d.Target
			m.shrinkTo(d.Target, slack)
		}
		m.limit.Unlock()
		if changed != nil && (d.Changed || d.Warn) {
			changed(MemoryLimit{Bytes: d.Target, Minimum: least.sum(host), Short: d.Short})
		}
	}
	m.limit.following.Go(func() { pressure.Watch(ctx, c, read, apply) })
}

// hostLimited reports whether the user gave a limit for the host's memory.
func hostLimited(limits []devicemap.DeviceMemory) bool {
	return slices.ContainsFunc(limits, func(d devicemap.DeviceMemory) bool { return d.Device == devicemap.CPU })
}

// readLimits returns the limit of this process's control groups, and the anonymous memory
// of the process.
func readLimits(root fs.FS) pressure.Reading {
	r := pressure.Reading{Held: topology.Anonymous(root), Stall: topology.MemoryStall(root)}
	groups := topology.MemoryGroups(root)
	r.Held = max(r.Held, topology.Anonymous(root)) // what is freed meanwhile is not another process's
	for _, g := range groups {
		if n := max(g.Allows(r.Held), 1); r.Limit == 0 || n < r.Limit {
			r.Limit = n
		}
	}
	return r
}

// SetMemoryShare limits the host's memory of the model to bytes while other models need the rest,
// in addition to its other limits. 0 removes the share. The model releases memory as
// [Model.SetMemoryLimit] describes, but keeps the KV cache of one sequence of the whole context
// and the memory for requests, so that no request fails because of the share. SetMemoryShare
// returns the share: bytes, or the minimum of the model if that is more. Passes continue, and
// results stay bitwise the same. It is safe for concurrent use.
func (m *Model) SetMemoryShare(bytes int64) (share int64) {
	m.limit.Lock()
	defer m.limit.Unlock()
	host := m.plan.Device(devicemap.CPU)
	if bytes > 0 {
		bytes = max(bytes, m.leastOfShare().sum(host))
	}
	m.limit.share = bytes
	target := m.limit.target
	if target == 0 {
		target = max(host.LimitBytes, host.Used())
	}
	m.shrinkTo(target, 0)
	return bytes
}

// leastOfShare returns the minimum parts of a share.
func (m *Model) leastOfShare() shares {
	host, least := m.plan.Device(devicemap.CPU), m.limit.least
	least.requests = host.RequestBytes
	if m.cache != nil {
		least.kv = min(m.cache.Config().SequenceBytes(m.settings.Context, m.settings.MaxBatchTokens), host.KVBytes)
	}
	return least
}
