package meta

// Stacks returns the names of the children whose parameters are stacked by expert, in the order in which a pass uses
// them. A name may be "", for the node itself.
func (s *MoESpec) Stacks() []string {
	if s.DownExperts == "" {
		return []string{s.Experts}
	}
	return []string{s.Experts, s.DownExperts}
}

// ExpertStacks returns the modules below m, a node with the MoE spec s, whose parameters are
// stacked by expert.
func (m *Module) ExpertStacks(s *MoESpec) (list []*Module) {
	for _, name := range s.Stacks() {
		if stack := m.Find(name); stack != nil {
			list = append(list, stack.Resolve())
		}
	}
	return list
}

// matricesOfExperts returns the stacked matrices of an MoE layer.
func (m *Module) matricesOfExperts(s *MoESpec) (list []*Param) {
	stacks := m.ExpertStacks(s)
	for i, stack := range stacks {
		names := []string{s.GateUp, s.Down}
		if len(stacks) > 1 {
			names = names[i : i+1]
		}
		for _, name := range names {
			if p := stack.Param(name); p != nil {
				list = append(list, p)
			}
		}
	}
	return list
}
