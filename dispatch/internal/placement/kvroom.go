package placement

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

const (
	// LeastContext is the number of tokens that a plan reserves for the first sequence if the
	// user sets no context.
	LeastContext = 4096
	// kvShare limits the KV cache to 1/kvShare of the host's limit, or to one sequence of the
	// whole context if that is more.
	kvShare = 4
)

// kvRoom decides how much memory of a plan the KV cache gets. Weights that every token reads are
// worth more than KV pages that no request uses. The plan therefore reserves the KV cache of one
// sequence, places the weights, and then gives the remaining memory to the KV cache.
type kvRoom struct {
	cache    kvcache.Config
	tokens   int   // of the first sequence
	sequence int64 // bytes of the KV cache that are reserved before weights are placed
	asked    bool  // the user gave the size of the KV cache
	whole    int64 // bytes of one sequence of the whole context
	most     int64 // bytes of as many sequences as a batch may have
	spread   int64 // bytes of the KV cache on all devices, where layers are on GPUs
	options  *Settings
}

// newKVRoom fills in the defaults of o.
func newKVRoom(skeleton *meta.Model, program *nn.Program, o *Settings) *kvRoom {
	context := o.Context
	asked := o.KVTokens > 0 || o.KVBytes > 0
	*o = o.withDefaults(skeleton)
	if context <= 0 {
		context = min(o.Context, LeastContext)
	}
	k := &kvRoom{cache: o.KVConfig(program), asked: asked, tokens: context, options: o}
	k.sequence = k.bytes(context)
	if asked {
		k.sequence = int64(k.cache.Pages) * k.cache.PageBytes()
	}
	k.whole = k.bytes(o.Context)
	k.most = int64(o.MaxSequences) * k.whole
	return k
}

// bytes returns the size of one sequence of n tokens.
func (k *kvRoom) bytes(n int) int64 { return k.cache.SequenceBytes(n, k.options.MaxBatchTokens) }

// stateSlots returns an upper bound of the number of states that fit into the pages of the cache
// at its reserved size. For a cache that grows, the bound grows in proportion.
func (k *kvRoom) stateSlots() int64 {
	config, size := k.cache, k.cache.StateBytes()
	if size == 0 {
		return 0
	}
	config.Pages = int(k.sequence / max(config.PageBytes(), 1))
	return config.AddressedBytes()/size + 1
}

// usualShare is the part of one sequence's KV cache, 1/usualShare, that plans expect to be in
// use.
const usualShare = 8

// lendableRequests returns the memory for requests of plan that may be lent.
func (k *kvRoom) lendableRequests(plan *devicemap.Plan) int64 {
	if host := plan.Device(devicemap.CPU); hostmem.Lazy && host.LimitBytes > 0 && host.KVBytes > 0 {
		return host.RequestBytes
	}
	return 0
}

// unused returns the part of the plan's KV cache that a usual sequence leaves unused. The cache
// lends it to weights of the disk tier.
func (k *kvRoom) unused(plan *devicemap.Plan) int64 {
	host := plan.Device(devicemap.CPU)
	if !hostmem.Lazy || host.LimitBytes == 0 {
		return 0
	}
	k.options.KVUsual = k.bytes((k.tokens + usualShare - 1) / usualShare)
	return max(0, host.KVBytes-k.options.KVUsual)
}

// takeFree gives the plan's free host memory to the KV cache.
func (k *kvRoom) takeFree(plan *devicemap.Plan) {
	if usesGPU(plan) {
		k.takeFreeOfAll(plan)
		return
	}
	if k.asked {
		return
	}
	for i := range plan.Devices {
		d := &plan.Devices[i]
		if d.Device != devicemap.CPU || d.KVBytes == 0 {
			continue
		}
		share := max((d.LimitBytes-d.RuntimeBytes-d.RequestBytes)/kvShare, k.whole)
		more := min(d.LimitBytes-d.Used(), min(share, k.most)-d.KVBytes)
		d.KVBytes += max(more, 0)
	}
}

// grown returns the size to which the KV cache may grow by evicting the plan's weights, if
// requests need it. Converted weights are not evicted, because each pass would convert them
// again, unless they are coded and can be read as stored.
func (k *kvRoom) grown(plan *devicemap.Plan) int64 {
	host := plan.Device(devicemap.CPU)
	if k.asked || plan.BelowLeast || host.LimitBytes == 0 || host.KVBytes == 0 || !hostmem.Lazy {
		return host.KVBytes
	}
	most := host.KVBytes + max(0, host.LimitBytes-host.Used())
	if k.options.LoadedAs() == meta.QuantNone || k.options.InMemory {
		most += host.WeightsBytes
	}
	return max(host.KVBytes, min(most, k.most))
}

// size sets the sizes of the KV cache in the options.
func (k *kvRoom) size(plan *devicemap.Plan) {
	o := k.options
	planned := plan.Device(devicemap.CPU).KVBytes
	if o.KVGrown = k.grown(plan); usesGPU(plan) { // pages are spread over devices, and there are as many on each
		planned = k.spread
		o.KVGrown = planned
	}
	o.MaxModelLen = k.cache.SequenceTokens(int(max(o.KVGrown, k.sequence)/max(k.cache.PageBytes(), 1)), o.MaxBatchTokens, o.Context)
	if o.KVBytes = max(planned, k.sequence); o.KVBytes > 0 && !k.asked {
		o.KVTokens = k.cache.SharedTokens(int(o.KVBytes/k.cache.PageBytes()), o.MaxSequences, o.MaxBatchTokens, o.MaxSequences*o.Context)
	}
}
