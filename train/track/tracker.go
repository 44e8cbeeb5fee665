package track

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Values are measurements of a step by name: numbers, strings, and groups of numbers
// (map[string]float64), which are drawn in one chart.
type Values = map[string]any

// Tracker records measurements of a run.
type Tracker interface {
	// Name returns the tracker's name, such as "csv".
	Name() string
	// Configure records the run's settings: numbers, booleans and strings. It is called at most
	// once, before the first Log.
	Configure(settings Values) error
	// Log records values of a step. It fails on values of other types than [Values] lists.
	Log(values Values, step int) error
	// Close ends the record. The tracker must not be used afterwards.
	Close() error
}

// Names returns the names that [Open] accepts.
func Names() []string { return []string{"tensorboard", "jsonl", "csv", "curve"} }

// Open makes a tracker by name: event files, metrics.jsonl, metrics.csv or loss.png in dir, which
// it creates if needed.
func Open(name, dir string) (Tracker, error) {
	var t Tracker
	var err error
	switch name {
	case "tensorboard":
		t, err = NewTensorBoard(dir)
	case "jsonl":
		t, err = NewJSONL(filepath.Join(dir, "metrics.jsonl"))
	case "csv":
		t, err = NewCSV(filepath.Join(dir, "metrics.csv"))
	case "curve":
		t, err = NewCurve(filepath.Join(dir, "loss.png"), "loss", "eval_loss")
	default:
		return nil, fmt.Errorf("track: got tracker %q, want one of %s", name, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, err // not an interface that holds a nil pointer
	}
	return t, nil
}

// number returns v as a float64, if it is a number.
func number(v any) (float64, bool) {
	switch x := reflect.ValueOf(v); x.Kind() {
	case reflect.Float32, reflect.Float64:
		return x.Float(), true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return float64(x.Int()), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return float64(x.Uint()), true
	}
	return 0, false
}

// check rejects values that no tracker can record.
func check(values Values) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		_, num := number(v)
		switch v.(type) {
		case string, bool, map[string]float64:
			continue
		}
		if !num {
			return fmt.Errorf("track: %s: got a %T, want a number or a string", name, v)
		}
	}
	return nil
}

// flatten names the numbers of groups name/part.
func flatten(values Values) Values {
	flat := Values{}
	for name, v := range values {
		group, ok := v.(map[string]float64)
		if !ok {
			flat[name] = v
			continue
		}
		for part, x := range group {
			flat[name+"/"+part] = x
		}
	}
	return flat
}
