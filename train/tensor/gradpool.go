package tensor

import "sync"

// GradPool holds the memory of dropped gradients, for later gradients of the same length.
// Parameters of any number of ranks may share one. It is safe for concurrent use.
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

// take returns n elements of undefined value, or nil.
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

// PoolGrad makes p take the memory of its gradients from pool, and return it to pool when they
// are dropped, instead of keeping it for its next gradient.
func (p *Parameter) PoolGrad(pool *GradPool) {
	if p.pool = pool; p.spare != nil {
		pool.put(p.spare)
		p.spare = nil
	}
}

// PutGrad returns memory of [Parameter.NewGrad] that is not p's gradient to the pool of
// [Parameter.PoolGrad]. It returns false if there is no pool; the caller then keeps the memory.
func (p *Parameter) PutGrad(g []float32) bool {
	if p.pool == nil {
		return false
	}
	p.pool.put(g)
	return true
}
