package dispatch

import (
	"bytes"
	"encoding/json"

	"github.com/heftai/heft/devicemap"
)

// A Report is a plan with what it predicts and what was measured: the JSON of
// `serve plan --json` and GET /plan.
type Report struct {
	Plan      devicemap.Plan
	Predicted ModelSpeed
	Measured  ModelSpeed
}

// ModelSpeed are speeds, predicted by [Predict] or measured by [Model.Measured]; nil is not
// known.
type ModelSpeed struct {
	// LoadSeconds is what bringing the cpu tier into memory takes.
	LoadSeconds *float64 `json:"load_seconds"`
	// FirstTokenSeconds is from the start of the first prompt, with nothing in memory, to
	// its first token: of a prompt of 8 tokens where it is predicted.
	FirstTokenSeconds *float64 `json:"first_token_seconds"`
	// TokensPerSecond is of one sequence that generates.
	TokensPerSecond *float64 `json:"tokens_per_second"`
	// DiskBytesPerToken is what a pass reads from the disk tier in which each sequence
	// generates one token.
	DiskBytesPerToken *float64 `json:"disk_bytes_per_token"`
}

// With is r with what was measured so far. r stays as it is.
func (r *Report) With(measured ModelSpeed) *Report {
	out := *r
	out.Measured = measured
	return &out
}

// NewReport is a report of what the plan alone tells.
func NewReport(plan devicemap.Plan) *Report {
	disk := float64(plan.DiskBytesPerToken)
	return &Report{Plan: plan, Predicted: ModelSpeed{DiskBytesPerToken: &disk}}
}

// MarshalJSON puts predicted and measured beside the plan's own fields.
func (r *Report) MarshalJSON() ([]byte, error) {
	plan, err := json.Marshal(r.Plan)
	if err != nil {
		return nil, err
	}
	rest, err := json.Marshal(struct {
		Predicted ModelSpeed `json:"predicted"`
		Measured  ModelSpeed `json:"measured"`
	}{r.Predicted, r.Measured})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Write(bytes.TrimSuffix(plan, []byte("}")))
	out.WriteByte(',')
	out.Write(bytes.TrimPrefix(rest, []byte("{")))
	return out.Bytes(), nil
}
