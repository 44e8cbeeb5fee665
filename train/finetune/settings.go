package finetune

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/filehash"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/train"
)

// runFile is the file in the output folder with the settings of the run.
const runFile = "train_run.json"

// settings are the options that determine the weights of a run. A run can resume only with the same
// settings.
type settings struct {
	Model          string    `json:"model"`
	Data           []string  `json:"data_sha256"`
	Pack           bool      `json:"pack"`
	LearnPrompt    bool      `json:"learn_prompt"`
	LastAnswer     bool      `json:"last_answer,omitempty"`
	Sequence       int       `json:"sequence"`
	Batch          int       `json:"batch"`
	Accumulation   int       `json:"gradient_accumulation_steps"`
	Processes      int       `json:"num_processes"`
	Epochs         float64   `json:"epochs"`
	MaxSteps       int       `json:"max_steps"`
	MaxGradNorm    float64   `json:"max_grad_norm"`
	LearningRate   float64   `json:"learning_rate"`
	Scheduler      string    `json:"lr_scheduler"`
	WarmupSteps    int       `json:"warmup_steps"`
	WarmupRatio    float64   `json:"warmup_ratio"`
	WeightDecay    float64   `json:"weight_decay"`
	Seed           uint64    `json:"seed"`
	MixedPrecision string    `json:"mixed_precision"`
	LoRA           string    `json:"lora"`
	Plugin         string    `json:"plugin,omitempty"` // empty for ddp, as in files of older versions
	Method         string    `json:"method,omitempty"` // empty for sft
	Beta           float64   `json:"beta,omitempty"`
	LossType       string    `json:"loss_type,omitempty"`
	LabelSmoothing float64   `json:"label_smoothing,omitempty"`
	ReferenceFree  bool      `json:"reference_free,omitempty"`
	Weights        []float64 `json:"weights,omitempty"`   // of desirable and undesirable answers
	Optimizer      []any     `json:"optimizer,omitempty"` // its name and numbers; empty for AdamW with its defaults
	InOrder        bool      `json:"in_order,omitempty"`  // --no-shuffle
	ScheduleKwargs string    `json:"lr_scheduler_kwargs,omitempty"`
	DataWeights    []float64 `json:"data_weights,omitempty"`
	Quantize       string    `json:"quantize,omitempty"`
	Freeze         []string  `json:"freeze,omitempty"`
	NEFTune        float64   `json:"neftune_noise_alpha,omitempty"`
	// More has the options with a tag "setting" whose values differ from their defaults.
	More map[string]any `json:"more,omitempty"`
}

func (j *job) settings() (settings, error) {
	s := settings{Pack: j.Pack, LearnPrompt: j.LearnPrompt, LastAnswer: j.LastAnswer, Sequence: j.Sequence, Batch: j.Batch,
		Accumulation: j.GradientAccumulationSteps, Processes: j.ranks, Epochs: j.Epochs, MaxSteps: j.MaxSteps, MaxGradNorm: j.MaxGradNorm,
		LearningRate: j.rate(), Scheduler: j.LRScheduler, WarmupSteps: int(j.WarmupSteps), WarmupRatio: j.WarmupRatio, WeightDecay: j.WeightDecay,
		Seed: j.Seed, MixedPrecision: j.MixedPrecision, LoRA: j.LoRA, LabelSmoothing: j.LabelSmoothing, InOrder: !j.Shuffle,
		ScheduleKwargs: j.LRSchedulerKwargs, DataWeights: j.DataWeights, Quantize: j.Quantize, Freeze: j.Freeze, NEFTune: j.NeftuneNoiseAlpha}
	if j.Method != "sft" {
		s.Method, s.Beta, s.LossType, s.ReferenceFree = j.Method, j.beta(), j.LossType, j.ReferenceFree
	}
	if now := []any{j.Optimizer, j.AdamBeta1, j.AdamBeta2, j.AdamEpsilon, j.Momentum}; !slices.Equal(now, []any{"adamw", 0.9, 0.999, 1e-8, 0.0}) {
		s.Optimizer = now
	}
	if j.Method == "kto" {
		s.Weights = []float64{j.DesirableWeight, j.UndesirableWeight}
	}
	if j.Plugin != "ddp" {
		s.Plugin = j.Plugin
	}
	s.More = j.more()
	var err error
	if s.Model, err = filepath.Abs(j.model); err != nil {
		return s, err
	}
	for _, path := range j.files {
		sum, err := filehash.SHA256(path)
		if err != nil {
			return s, misuse(err)
		}
		s.Data = append(s.Data, sum)
	}
	return s, nil
}

// more returns the options with a tag "setting" whose values differ from their defaults, as JSON
// decodes them.
func (j *job) more() map[string]any {
	all, usual := map[string]any{}, reflect.ValueOf(Defaults())
	for field, v := range reflect.ValueOf(j.Options).Elem().Fields() {
		name := field.Tag.Get("setting")
		if name == "" || reflect.DeepEqual(v.Interface(), usual.FieldByIndex(field.Index).Interface()) {
			continue
		}
		b, err := json.Marshal(v.Interface())
		var as any
		if err == nil && json.Unmarshal(b, &as) == nil {
			all[name] = as
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// settle encodes the settings of a new run for claim, or compares those of a resumed one. Changed
// settings are an error, and with --resume DIR a line in the log.
func (j *job) settle(goesOn bool) error {
	now, err := j.settings()
	if err != nil {
		return err
	}
	if goesOn {
		return j.sameSettings(now)
	}
	if j.resumesDir() {
		changed, err := changedSettings(filepath.Dir(filepath.Clean(j.Resume)), now)
		if err != nil {
			return err
		}
		if j.changed = strings.Join(changed, ", "); j.changed != "" {
			j.log.Warn("the run continues with other settings than those of the checkpoint", "checkpoint", j.Resume, "changed", j.changed)
		}
	}
	b, err := json.MarshalIndent(now, "", "  ")
	j.fresh = append(b, '\n')
	return err
}

// sameSettings returns an error if the checkpoints in the output folder are of a run with other
// settings.
func (j *job) sameSettings(now settings) error {
	changed, err := changedSettings(j.Output, now)
	if err != nil || len(changed) == 0 {
		return err
	}
	hint := "use --resume never to start again"
	if latest, err := train.LatestCheckpoint(j.Output); err == nil {
		hint += ", or --resume " + latest + " to continue with these settings"
	}
	return misusef("the checkpoints in %s belong to a run with another %s: %s", j.Output, strings.Join(changed, ", "), hint)
}

// changedSettings describes how the settings of the run in dir differ from now. A folder without a
// file of settings differs in nothing.
func changedSettings(dir string, now settings) ([]string, error) {
	path := filepath.Join(dir, runFile)
	b, err := smallfile.Read(path, smallfile.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var was settings
	if err := json.Unmarshal(b, &was); err != nil {
		return nil, fmt.Errorf("%s: %w; remove the file to resume without comparing settings", path, err)
	}
	return different(was, now), nil
}

// unfit adds a way out to an error of a run that did not begin because its checkpoint has no state
// for the changed settings, such as another optimizer.
func (s *student) unfit(err error) error {
	if s.began || s.changed == "" {
		return err
	}
	start := "--model " + s.Resume
	if _, err := os.Stat(filepath.Join(s.Resume, "adapter_config.json")); err == nil {
		start = "--lora from=" + s.Resume
	}
	return misusef("--resume %s does not continue with another %s: omit the change, or start from the checkpoint's weights with %s and another --output: %w",
		s.Resume, s.changed, start, err)
}

// different describes the settings that differ.
func different(a, b settings) []string {
	for _, s := range []*settings{&a, &b} {
		s.Method, s.Plugin = cmp.Or(s.Method, "sft"), cmp.Or(s.Plugin, "ddp")
	}
	var names []string
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		was, now := x.Field(i).Interface(), y.Field(i).Interface()
		name, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("json"), ",")
		switch x.Field(i).Kind() {
		case reflect.Map:
			names = append(names, differentKeys(was.(map[string]any), now.(map[string]any))...)
		case reflect.Slice:
			if !reflect.DeepEqual(was, now) {
				names = append(names, name)
			}
		default:
			names = appendChange(names, name, was, now)
		}
	}
	slices.Sort(names)
	return names
}

// differentKeys describes the values that differ. A missing one has its default.
func differentKeys(a, b map[string]any) (names []string) {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, b)
	for name := range all {
		value := func(m map[string]any) any {
			if v, ok := m[name]; ok {
				return v
			}
			return "the default"
		}
		names = appendChange(names, name, value(a), value(b))
	}
	return names
}

// appendChange describes a setting if it differs.
func appendChange(names []string, name string, was, now any) []string {
	if reflect.DeepEqual(was, now) {
		return names
	}
	text := func(v any) any {
		if v == "" {
			return "none"
		}
		return v
	}
	return append(names, fmt.Sprintf("%s (then %v, now %v)", name, text(was), text(now)))
}

// tracked returns the settings that trackers show.
func (s *student) tracked() map[string]any {
	all := map[string]any{}
	now, err := s.settings()
	if err != nil {
		return all
	}
	b, err := json.Marshal(now)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return map[string]any{}
	}
	all["data"] = strings.Join(s.files, " ")
	delete(all, "data_sha256")
	all["model"] = filepath.Base(s.job.model)
	for name, v := range all {
		switch v.(type) {
		case []any, map[string]any: // types that trackers do not support
			if b, err := json.Marshal(v); err == nil {
				all[name] = string(b)
			}
		}
	}
	return all
}
