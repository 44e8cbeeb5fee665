package devicemap

import "slices"

// CacheExperts gives the host memory that the plan leaves free to a cache of the routed experts
// on the disk, and reduces DiskBytesPerToken by the expected hits. It does nothing if there are
// no such experts. lent is additional host memory, in bytes, that the KV cache and requests do
// not need most of the time. hits returns the expected share of requested experts in the cache,
// from 0 to 1. Its argument is the share of the experts' bytes that fits into the cache.
func (p *Plan) CacheExperts(lent int64, hits func(share float64) float64) {
	onDisk, largest := p.expertsOnDisk()
	if onDisk == 0 {
		return
	}
	for i := range p.Devices {
		d := &p.Devices[i]
		if d.Device != CPU {
			continue
		}
		staged := 2 * largest // already in the plan
		all := (onDisk + largest - 1) / largest * (largest + slotOverhead)
		free := min(max(0, d.LimitBytes-d.Used()-p.keptFree), max(0, all-staged))
		d.StagingBytes += free
		p.ExpertCacheBytes = staged + free
	}
	slot := largest + slotOverhead
	more := min(lent, max(0, (onDisk+largest-1)/largest*slot-p.ExpertCacheBytes)) / slot * slot
	p.LentBytes += more
	p.lentToExperts = more
	p.ExpertHitRate = hits(cachedShare(p.ExpertCacheBytes+more, onDisk, largest))
	p.DiskBytesPerToken -= int64(p.ExpertHitRate * float64(p.ExpertBytesPerToken))
}

// LendingLess returns p with bytes less of lent memory for the cache of experts, and with the
// hits expected then. Call it after [Plan.CacheExperts], with the same hits.
func (p Plan) LendingLess(bytes int64, hits func(share float64) float64) Plan {
	less := min(bytes, p.lentToExperts)
	if less <= 0 {
		return p
	}
	p.LentBytes -= less
	p.lentToExperts -= less
	p.expectHits(hits)
	return p
}

// Moved returns the plan while the host has less memory for weights than p planned. host is the
// CPU's part then. Weights that are in its memory in p but not in host are on the disk; streamed
// is how many bytes of them a token reads. less is the number of bytes by which the cache of
// experts has shrunk. hits is as in [Plan.CacheExperts].
func (p Plan) Moved(host DevicePlan, streamed, less int64, hits func(share float64) float64) Plan {
	before := p.Device(CPU)
	p.Devices = slices.Clone(p.Devices)
	disk := slices.IndexFunc(p.Devices, func(d DevicePlan) bool { return d.Device == Disk })
	if disk < 0 {
		disk, p.Devices = len(p.Devices), append(p.Devices, DevicePlan{Device: Disk})
	}
	p.Devices[disk].WeightsBytes += before.WeightsBytes - host.WeightsBytes
	if cpu := slices.IndexFunc(p.Devices, func(d DevicePlan) bool { return d.Device == CPU }); cpu >= 0 {
		p.Devices[cpu] = host
	}
	p.DiskBytesPerToken += streamed
	if less = min(less, p.ExpertCacheBytes); less > 0 {
		p.ExpertCacheBytes -= less
		p.expectHits(hits)
	}
	return p
}

// expectHits updates the expected hits of the cache of experts after its size has changed.
func (p *Plan) expectHits(hits func(share float64) float64) {
	onDisk, _ := p.expertsOnDisk()
	p.DiskBytesPerToken += int64(p.ExpertHitRate * float64(p.ExpertBytesPerToken))
	p.ExpertHitRate = hits(cachedShare(p.ExpertCacheBytes+p.lentToExperts, onDisk, p.LeastExpertBytes()/2-slotOverhead))
	p.DiskBytesPerToken -= int64(p.ExpertHitRate * float64(p.ExpertBytesPerToken))
}

// expertsOnDisk returns the bytes of all routed experts on the disk, and of the largest one.
func (p *Plan) expertsOnDisk() (all, largest int64) {
	for i := range p.units {
		if u := &p.units[i]; u.at == Disk {
			all += u.expertBytes
			largest = max(largest, u.expert)
		}
	}
	return all, largest
}

// UncachedExpertBytes returns the bytes of the experts on the disk that do not fit into their
// cache.
func (p *Plan) UncachedExpertBytes() int64 {
	all, _ := p.expertsOnDisk()
	return max(0, all-p.CachedExpertBytes())
}

// CachedExpertBytes returns the bytes of experts that are expected to fit into their cache.
func (p *Plan) CachedExpertBytes() int64 {
	slot := p.LeastExpertBytes() / 2
	if slot <= slotOverhead {
		return 0
	}
	return (p.ExpertCacheBytes + p.lentToExperts) / slot * (slot - slotOverhead)
}

// CachedExpertShare returns the share of the experts on the disk that are expected to fit into their
// cache. It is 0 without a cache.
func (p *Plan) CachedExpertShare() float64 {
	cached := p.CachedExpertBytes()
	if cached <= 0 {
		return 0
	}
	return float64(cached) / float64(cached+p.UncachedExpertBytes())
}

// KeepStreamed plans to keep streamed matrices in host memory until the KV cache or requests need
// it. Matrices take, in this order, alone bytes that are lent only to them, free bytes that the
// plan leaves free, and shared bytes that experts may also borrow. KeepStreamed reduces
// DiskBytesPerToken by the matrices that fit, and returns what remains of shared. Weights that the
// user's map places on the disk are not kept. Call it before [Plan.CacheExperts].
func (p *Plan) KeepStreamed(alone, free, shared int64) (rest int64) {
	if p.Policy == Manual {
		return shared
	}
	lent := alone + free + shared
	var streamed, again int64
	for i := range p.units {
		if u := &p.units[i]; u.at == Disk {
			streamed, again = streamed+u.stream+u.banded, again+u.again
		}
	}
	kept := min(lent, streamed, p.DiskBytesPerToken-p.ExpertBytesPerToken)
	p.LentBytes += kept
	p.kept = kept
	if again > 0 { // it is unknown which matrices are kept
		p.kept += int64(float64(again) * float64(kept) / float64(streamed))
	}
	p.DiskBytesPerToken -= p.kept
	p.keptFree = min(max(0, kept-alone), free)
	return min(shared, lent-kept)
}

// Streamed returns the bytes that a token would read from the disk if no memory were lent to
// matrices.
func (p *Plan) Streamed() int64 { return p.DiskBytesPerToken + p.kept }

// LeastExpertBytes returns the minimum size of the cache of experts.
func (p *Plan) LeastExpertBytes() int64 {
	_, largest := p.expertsOnDisk()
	return 2 * (largest + slotOverhead)
}

// slotOverhead is the overhead of direct reads per expert: its three matrices begin and end
// anywhere in a page.
const slotOverhead = 3 * 3 << 12

// cachedShare returns the share of experts that fits into a cache in whole slots. bytes is the
// size of all experts and largest that of the largest one.
func cachedShare(cache, bytes, largest int64) float64 {
	slots := cache / (largest + slotOverhead)
	return min(1, float64(slots*largest)/float64(bytes))
}
