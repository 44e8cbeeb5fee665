package model

import (
	"errors"
	"fmt"

	"github.com/heftai/heft/meta"
)

// check reports why a module has no rule here.
func check(m *meta.Module) error {
	switch s := m.Spec.(type) {
	case *meta.AttentionSpec:
		return checkAttention(s)
	case *meta.MoESpec:
		return checkMoE(s)
	case *meta.NormSpec:
		if s.Heads > 0 {
			return errors.New("a norm with weights for each head cannot be trained")
		}
	case *meta.MLPSpec:
		return checkActivation(s.Act, s.FusedOrder)
	}
	return nil
}

func checkAttention(s *meta.AttentionSpec) error {
	switch {
	case s.MLA != nil:
		return errors.New("latent attention cannot be trained")
	case s.Sinks != "":
		return errors.New("attention with sinks cannot be trained")
	case s.Softcap != 0:
		return errors.New("attention with soft-capped scores cannot be trained")
	case s.ValueDim != s.HeadDim:
		return fmt.Errorf("values of %d beside keys of %d cannot be trained", s.ValueDim, s.HeadDim)
	case s.Rope != nil && s.Rope.Interleaved:
		return errors.New("a rotation of neighbouring pairs cannot be trained")
	}
	return nil
}

func checkMoE(s *meta.MoESpec) error {
	switch {
	case s.Score == meta.ScoreSigmoid || s.Correction != "" || s.Groups > 0:
		return errors.New("experts chosen by a sigmoid or by groups cannot be trained")
	case s.Transposed || s.GateUpBias != "" || s.DownBias != "":
		return errors.New("transposed experts and those with biases cannot be trained")
	}
	return checkActivation(s.Act, s.GateOrder)
}

func checkActivation(a meta.Activation, order meta.GateOrder) error {
	switch {
	case a == meta.ActClampedSwiGLU:
		return errors.New("a clamped gate cannot be trained")
	case order == meta.GateInterleaved:
		return errors.New("a gate that is interleaved cannot be trained")
	}
	return nil
}
