package progress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/track"
)

// File is the name of the state's file in a checkpoint.
const File = "trainer_state.json"

// CheckpointName returns the name of the checkpoint directory of a step.
func CheckpointName(step int) string { return prefix + strconv.Itoa(step) }

const prefix = "checkpoint-"

// CheckpointStep returns the step in the name of a checkpoint directory.
func CheckpointStep(name string) (step int, ok bool) {
	if !strings.HasPrefix(name, prefix) {
		return 0, false
	}
	return checkpoint.Number(name)
}

// MetricsAt returns the metrics of the evaluation after a step, from the history.
func (s *State) MetricsAt(step int) map[string]float64 {
	metrics := map[string]float64{}
	for _, entry := range s.LogHistory {
		if at := entry["step"]; at != step && at != float64(step) { // a history read from a file has only floats
			continue
		}
		for name, v := range entry {
			if f, ok := v.(float64); ok && strings.HasPrefix(name, "eval_") && name != EvalTokens {
				metrics[name] = f
			}
		}
	}
	return metrics
}

// EvalTokens is the name of an evaluation's number of tokens, which is not a metric.
const EvalTokens = "eval_num_tokens"

// Checkpoints returns the checkpoint directories in dir, lowest step first.
func Checkpoints(dir string) ([]string, error) {
	all, err := checkpoint.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, name := range all {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, err
}

// RemoveOld removes checkpoints in dir beyond limit, those with the lowest steps first. It keeps
// the best checkpoint and that of the current step. A limit below 1 keeps all.
func (s *State) RemoveOld(dir string, limit int) error {
	if limit < 1 {
		return nil
	}
	names, err := Checkpoints(dir)
	if err != nil {
		return err
	}
	left := len(names)
	for _, name := range names {
		if left <= limit {
			return nil
		}
		path := filepath.Join(dir, name)
		best := s.BestModelCheckpoint
		if best != nil && *best == path || name == CheckpointName(s.GlobalStep) {
			continue
		}
		if err := checkpoint.Remove(path); err != nil {
			return err
		}
		left--
	}
	return nil
}

// Write writes the state into a directory.
func (s *State) Write(dir string) error {
	c := *s
	c.LogHistory = make([]map[string]any, len(s.LogHistory))
	for i, entry := range s.LogHistory {
		c.LogHistory[i] = track.JSONValues(entry)
	}
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, File), append(b, '\n'), 0o666)
}

// Read reads the state from a checkpoint directory.
func Read(dir string) (*State, error) {
	path := filepath.Join(dir, File)
	b, err := smallfile.Read(path, smallfile.State)
	if err != nil {
		return nil, fmt.Errorf("train: trainer: %w", err)
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("train: trainer: %s: %w", path, err)
	}
	if s.GlobalStep < 0 {
		return nil, fmt.Errorf("train: trainer: %s: global_step is %d, want 0 or more", path, s.GlobalStep)
	}
	if err := checkpoint.Verify(dir, File); err != nil {
		return nil, fmt.Errorf("train: trainer: %s: %w", dir, err)
	}
	return &s, nil
}
