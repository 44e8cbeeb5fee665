package dispatch

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

const (
	// leastContext is the number of tokens that the first sequence of a plan has unless the user
	// asks for a context.
	leastContext = 4096
	// kvShare limits the KV cache to 1/kvShare of a host's limit, or to one sequence of the whole
	// context if that is more.
	kvShare = 4
)

// kvRoom decides how much memory of a plan the KV cache gets. Weights that every token reads are
// worth more than KV pages that no request uses. Weights are therefore placed beside the KV cache
// of one sequence, and the KV cache then takes what they leave.
type kvRoom struct {
	cache    kvcache.Config
	tokens   int   // of the first sequence
	sequence int64 // bytes of the KV cache that weights are placed beside
	asked    bool  // the user gave the size of the KV cache
	whole    int64 // bytes of one sequence of the whole context
	most     int64 // bytes of as many sequences as a batch may have
	spread   int64 // bytes of the KV cache on all devices, where layers are on GPUs
	options  *Options
}

// newKVRoom fills in the defaults of o.
func newKVRoom(skeleton *meta.Model, program *nn.Program, o *Options) *kvRoom {
	context := o.Context
	asked := o.KVTokens > 0 || o.KVBytes > 0
	*o = o.withDefaults(skeleton)
	if context <= 0 {
		context = min(o.Context, leastContext)
	}
	k := &kvRoom{cache: o.cache(program), asked: asked, tokens: context, options: o}
	k.sequence = k.bytes(context)
	if asked {
		k.sequence = int64(k.cache.Pages) * k.cache.PageBytes()
	}
	k.whole = k.bytes(o.Context)
	k.most = int64(o.MaxSequences) * k.whole
	return k
}

// bytes is the size of one sequence of n tokens.
func (k *kvRoom) bytes(n int) int64 { return k.cache.SequenceBytes(n, k.options.MaxBatchTokens) }

// stateSlots is how many states the pages of the cache may pay for where it has the size that weights are placed
// beside, or 1 more: a cache that grows has at most so many times as many.
func (k *kvRoom) stateSlots() int64 {
	config, size := k.cache, k.cache.StateBytes()
	if size == 0 {
		return 0
	}
	config.Pages = int(k.sequence / max(config.PageBytes(), 1))
	return config.AddressedBytes()/size + 1
}

// usualShare is the part of the KV cache of one sequence, 1/usualShare, that plans expect to be in use.
const usualShare = 8

// lendableRequests is the memory for requests of plan that may be lent.
func (k *kvRoom) lendableRequests(plan *devicemap.Plan) int64 {
	if host := plan.Device(devicemap.CPU); hostmem.Lazy && host.LimitBytes > 0 && host.KVBytes > 0 {
		return host.RequestBytes
	}
	return 0
}

// unused is how much of the plan's KV cache a usual sequence does not use, and the cache lends to
// weights of the disk tier.
func (k *kvRoom) unused(plan *devicemap.Plan) int64 {
	host := plan.Device(devicemap.CPU)
	if !hostmem.Lazy || host.LimitBytes == 0 {
		return 0
	}
	k.options.kvUsual = k.bytes((k.tokens + usualShare - 1) / usualShare)
	return max(0, host.KVBytes-k.options.kvUsual)
}

// takeFree gives memory of the host that the plan leaves free to the KV cache.
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

// grown is the size to which the KV cache may grow at the cost of the plan's weights, if requests
// need it. Converted weights stay, because each pass would convert them again, unless they are coded and
// can be read as stored.
func (k *kvRoom) grown(plan *devicemap.Plan) int64 {
	host := plan.Device(devicemap.CPU)
	if k.asked || plan.BelowLeast || host.LimitBytes == 0 || host.KVBytes == 0 || !hostmem.Lazy {
		return host.KVBytes
	}
	most := host.KVBytes + max(0, host.LimitBytes-host.Used())
	if k.options.loadedAs() == meta.QuantNone || k.options.unkept != nil {
		most += host.WeightsBytes
	}
	return max(host.KVBytes, min(most, k.most))
}

// size sets the sizes of the KV cache in the options.
func (k *kvRoom) size(plan *devicemap.Plan) {
	o := k.options
	planned := plan.Device(devicemap.CPU).KVBytes
	if o.kvGrown = k.grown(plan); usesGPU(plan) { // pages are spread over devices, and there are as many on each
		planned = k.spread
		o.kvGrown = planned
	}
	o.MaxModelLen = k.cache.SequenceTokens(int(max(o.kvGrown, k.sequence)/max(k.cache.PageBytes(), 1)), o.MaxBatchTokens, o.Context)
	if o.KVBytes = max(planned, k.sequence); o.KVBytes > 0 && !k.asked {
		o.KVTokens = k.cache.SharedTokens(int(o.KVBytes/k.cache.PageBytes()), o.MaxSequences, o.MaxBatchTokens, o.MaxSequences*o.Context)
	}
}
