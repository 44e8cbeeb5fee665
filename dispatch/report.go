package dispatch

import (
	"bytes"
	"encoding/json"

	"github.com/heftai/heft/devicemap"
)

// A Report is a plan with predicted and measured speeds. `serve plan --json` and GET /plan return
// its JSON.
type Report struct {
	Plan      devicemap.Plan
	Predicted ModelSpeed
	Measured  ModelSpeed
	// KVTokens is the number of tokens that the KV cache of the plan holds. MaxModelLen is the
	// maximum number of tokens of a request, for which the cache takes memory from weights. 0
	// means unknown.
	KVTokens, MaxModelLen int
	// FitsWith has changes that would keep all weights in memory. It is nil if the plan keeps
	// them there, or if no such changes are known.
	FitsWith *Fit
	// Helps are changes that are predicted to make the model faster; see [WhatHelps].
	Helps []Help
	// Routing holds the hit rates of a recorded routing by size of the expert cache; see
	// [Routing.Curve].
	Routing []RoutingHits
	// Probed are the machine's speeds that Predicted was computed from; nil if they are unknown.
	Probed *MachineSpeed
	// Coding is set if the plan codes weights.
	Coding *Coding
	// SelfDraft is the requested self-draft of the model, even if the plan rejects it; nil if
	// none was requested.
	SelfDraft *SelfDraft
	// DeviceUse is the result of [Model.DeviceUse] if the model is loaded.
	DeviceUse []DeviceUse
}

// ModelSpeed is the speed of a model, predicted by [Predict] or measured by [Model.Measured]. nil
// means unknown.
type ModelSpeed struct {
	// LoadSeconds is the time to read the cpu tier into memory.
	LoadSeconds *float64 `json:"load_seconds"`
	// FirstTokenSeconds is the time from the start of the first prompt to its first token, with
	// no weight in memory at the start. A prediction is for a prompt of 8 tokens.
	FirstTokenSeconds *float64 `json:"first_token_seconds"`
	// TokensPerSecond is the generation rate of one sequence.
	TokensPerSecond *float64 `json:"tokens_per_second"`
	// DiskBytesPerToken counts the bytes that a decoding pass reads from the disk tier.
	DiskBytesPerToken *float64 `json:"disk_bytes_per_token"`
}

// With returns a copy of r with the measured speeds.
func (r *Report) With(measured ModelSpeed) *Report {
	out := *r
	out.Measured = measured
	return &out
}

// NewReport returns a report of a plan without predictions, except for DiskBytesPerToken.
func NewReport(plan devicemap.Plan) *Report {
	disk := float64(plan.DiskBytesPerToken)
	return &Report{Plan: plan, Predicted: ModelSpeed{DiskBytesPerToken: &disk}}
}

// MarshalJSON adds the report's fields to the plan's own fields.
func (r *Report) MarshalJSON() ([]byte, error) {
	plan, err := json.Marshal(r.Plan)
	if err != nil {
		return nil, err
	}
	rest, err := json.Marshal(struct {
		Predicted ModelSpeed    `json:"predicted"`
		Measured  ModelSpeed    `json:"measured"`
		KVTokens  int           `json:"kv_tokens,omitempty"`
		MaxModel  int           `json:"max_model_len,omitempty"`
		FitsWith  *Fit          `json:"fits_with,omitempty"`
		Helps     []Help        `json:"what_helps,omitempty"`
		Routing   []RoutingHits `json:"expert_hits,omitempty"`
		Probed    *MachineSpeed `json:"probed,omitempty"`
		Coding    *Coding       `json:"coded,omitempty"`
		Self      *SelfDraft    `json:"self_draft,omitempty"`
		Use       []DeviceUse   `json:"device_use,omitempty"`
	}{r.Predicted, r.Measured, r.KVTokens, r.MaxModelLen, r.FitsWith, r.Helps, r.Routing, r.Probed, r.Coding, r.SelfDraft, r.DeviceUse})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Write(bytes.TrimSuffix(plan, []byte("}")))
	out.WriteByte(',')
	out.Write(bytes.TrimPrefix(rest, []byte("{")))
	return out.Bytes(), nil
}
