package devicemap

import (
	"fmt"
	"maps"
	"slices"

	"github.com/heftai/heft/meta"
)

// A Layout is a model prepared for [Solve]: its tensors with their sizes, and the units of a
// policy. It allows solving a model for several budgets in a fraction of the time. It is
// immutable and safe for concurrent use.
type Layout struct {
	model   *meta.Model
	policy  Policy
	table   *table
	divided *divider // nil with Accelerate's policies, which create units anew
}

// NewLayout returns the layout of model under policy. Its errors are those of [Solve] that do not
// depend on budgets.
func NewLayout(model *meta.Model, policy Policy) (*Layout, error) {
	if model == nil || model.Root == nil {
		return nil, fmt.Errorf("devicemap: no model")
	}
	l := &Layout{model: model, policy: policy.complete(model)}
	sizes, err := ownSizing(policy.DType)
	if err != nil {
		return nil, err
	}
	if l.table, err = newLoadedTable(model.Root, sizes, policy); err != nil {
		return nil, err
	}
	if err := l.table.checkPaths(policy.Pins); err != nil {
		return nil, err
	}
	switch p := &l.policy; p.Kind {
	case Auto:
		if err := l.table.checkStacks(p.Pins); err != nil {
			return nil, err
		}
		l.divided = divide(l.table, *p, p.Pins, true)
	case Manual:
		if missing := l.table.uncovered(p.Pins); len(missing) > 0 {
			return nil, &UncoveredError{missing}
		}
		l.divided = divide(l.table, *p, p.Pins, false)
	case Balanced, BalancedLow0, Sequential:
	default:
		return nil, fmt.Errorf("devicemap: unknown policy %q", p.Kind)
	}
	return l, nil
}

// complete returns p with the defaults of a model filled in.
func (p Policy) complete(model *meta.Model) Policy {
	if p.Kind == "" {
		p.Kind = Auto
	}
	if p.NoSplit == nil {
		p.NoSplit = model.NoSplitClasses
	}
	return p
}

// Suits reports whether [Layout.Solve] accepts policy: it may differ from the policy of
// [NewLayout] only in the fields that Solve uses.
func (l *Layout) Suits(policy Policy) bool {
	p, q := &l.policy, policy.complete(l.model)
	return p.Kind == q.Kind && p.DType == q.DType && p.OffloadBuffers == q.OffloadBuffers && slices.Equal(p.NoSplit, q.NoSplit) &&
		slices.Equal(p.Pins.entries, q.Pins.entries) && maps.Equal(p.Loaded, q.Loaded) &&
		maps.Equal(p.Streamed, q.Streamed) && maps.Equal(p.Bands, q.Bands)
}

// Solve is like the function [Solve] for the model of l. It uses SequenceKV, UnitKV, HostOnly,
// ExpertsApart, ExpertHits and Tight of policy, and the other fields of l's policy.
func (l *Layout) Solve(budgets []Budget, policy Policy) (Plan, error) {
	budgets, err := sortBudgets(budgets)
	if err != nil {
		return Plan{}, err
	}
	p := l.policy
	p.SequenceKV, p.UnitKV, p.HostOnly, p.ExpertsApart, p.ExpertHits, p.Tight = policy.SequenceKV, policy.UnitKV, policy.HostOnly, policy.ExpertsApart, policy.ExpertHits, policy.Tight
	switch p.Kind {
	case Auto:
		return solveAuto(l.divided.bound(&p), budgets, p)
	case Manual:
		return solveManual(l.divided.bound(&p), budgets, p)
	}
	return solveAccelerate(l.model.Root, l.table, budgets, p)
}
