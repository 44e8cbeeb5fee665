package dispatch

import (
	"reflect"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/residency/policy"
)

// TestPlanningReadsAllOptions: an option that is not copied to the settings of a plan, or a size that
// a plan chooses and does not return, has no effect.
func TestPlanningReadsAllOptions(t *testing.T) {
	var o Options
	v := reflect.ValueOf(&o).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); v.Type().Field(i).IsExported() {
			f.Set(other(f.Type()))
		}
	}
	o.Routing, o.ExpertHits = &Routing{&policy.Trace{}}, &ExpertHits{[]policy.Point{{}}}
	s := o.settings()
	settings := reflect.ValueOf(s)
	runs := []string{"KVStore", "DeviceLost"} // of running models
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if !v.Type().Field(i).IsExported() || slices.Contains(runs, name) {
			continue
		}
		if f := settings.FieldByName(name); !f.IsValid() || f.IsZero() {
			t.Errorf("the settings of a plan lack Options.%s", name)
		}
	}
	if !s.KVStored {
		t.Error("the settings do not say that there is a KV store")
	}
	back := reflect.ValueOf(Options{}.with(&s))
	chosen := []string{"Threads", "MaxBatchTokens", "MaxSequences", "StreamPrompts", "Context", "MaxModelLen", "KVDType", "KVTokens",
		"KVBytes", "StagingBytes", "RequestBytes", "Compress"}
	for _, name := range chosen {
		if back.FieldByName(name).IsZero() {
			t.Errorf("a plan does not return Options.%s", name)
		}
	}
}

// other returns a value of a type that is not its zero value.
func other(t reflect.Type) reflect.Value {
	out := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Bool:
		out.SetBool(true)
	case reflect.Int, reflect.Int64:
		out.SetInt(1)
	case reflect.Uint8:
		out.SetUint(1)
	case reflect.String:
		out.SetString("x")
	case reflect.Slice:
		return reflect.MakeSlice(t, 1, 1)
	case reflect.Pointer:
		return reflect.New(t.Elem())
	case reflect.Struct:
		out.Field(0).Set(other(out.Field(0).Type()))
	}
	return out
}
