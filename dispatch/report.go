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
	Predicted Rates
	Measured  Rates
}

// Rates are speeds; nil is not known.
type Rates struct {
	LoadSeconds       *float64 `json:"load_seconds"`
	FirstTokenSeconds *float64 `json:"first_token_seconds"`
	TokensPerSecond   *float64 `json:"tokens_per_second"`
	DiskBytesPerToken *float64 `json:"disk_bytes_per_token"`
}

// NewReport is a report of what the plan alone tells.
func NewReport(plan devicemap.Plan) *Report {
	disk := float64(plan.DiskBytesPerToken)
	return &Report{Plan: plan, Predicted: Rates{DiskBytesPerToken: &disk}}
}

// MarshalJSON puts predicted and measured beside the plan's own fields.
func (r *Report) MarshalJSON() ([]byte, error) {
	plan, err := json.Marshal(r.Plan)
	if err != nil {
		return nil, err
	}
	rest, err := json.Marshal(struct {
		Predicted Rates `json:"predicted"`
		Measured  Rates `json:"measured"`
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
