package residency

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/loader"
)

// Expect tells the operating system that unit i will be acquired soon, so that it reads missing
// pages of the mapping. Expect does not wait. Weights of the disk tier are read ahead without it.
func (s *Store) Expect(i int) {
	u := &s.units[i]
	for k := range u.wants {
		if w := &u.wants[k]; !w.gather {
			s.expect(w.segment)
		}
	}
	for _, n := range u.Experts {
		st := s.stacks[n.Module]
		for e := range st.experts {
			s.expect(&st.experts[e])
		}
	}
}

func (s *Store) expect(g *segment) {
	if g.device != devicemap.CPU || g.converts() || g.copied.Load() != nil {
		return
	}
	s.find(g)
	g.advise(loader.WillNeed)
}

// Staging returns the memory through which the disk tier streams, in bytes.
func (s *Store) Staging() int64 {
	_, n := s.ExpertBytes()
	if s.window != nil {
		n += int64(len(s.window.Bytes()))
	}
	return n
}
