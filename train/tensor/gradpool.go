package tensor

import "sync"

// GradPool has the memory of dropped gradients, for the next gradients of the same length. Parameters
// of any number of ranks may share one. Its methods are safe for concurrent use.
type GradPool struct {
	mu   sync.Mutex
	free map[int][][]float32 // by length
}

func (g *GradPool) put(x []float32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free == nil {
		g.free = map[int][][]float32{}
	}
	g.free[len(x)] = append(g.free[len(x)], x)
}

// take returns n numbers of any value, or nil.
func (g *GradPool) take(n int) []float32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := g.free[n]
	if len(list) == 0 {
		return nil
	}
	x := list[len(list)-1]
	list[len(list)-1] = nil
	g.free[n] = list[:len(list)-1]
	return x
}

// PoolGrad makes p take the memory of its gradients from pool, and return it there when they are dropped,
// instead of keeping it for its next gradient.
func (p *Parameter) PoolGrad(pool *GradPool) {
	if p.pool = pool; p.spare != nil {
		pool.put(p.spare)
		p.spare = nil
	}
}

// PutGrad returns memory of [Parameter.NewGrad] that is not p's gradient to the pool of
// [Parameter.PoolGrad]. It reports whether there is one; else the caller keeps the memory.
func (p *Parameter) PutGrad(g []float32) bool {
	if p.pool == nil {
		return false
	}
	p.pool.put(g)
	return true
}
