package finetune

import (
	"reflect"
	"slices"
	"strings"

	"github.com/heftai/heft/train/data"
)

// method is a value of --method: what records become, and what is learned from them.
type method interface {
	// check rejects values of options that the method does not take. Options whose tag "methods" leaves
	// the method out have their defaults.
	check(j *job) error
	// usual are the values of options that are not given.
	usual() usual
	// metrics are the values that evaluations have beside the loss.
	metrics(j *job) []string
	// read makes samples of the data.
	read(j *job, tokenizer *data.Tokenizer, o data.TextOptions) (*texts, error)
	// prepare wires a rank's model, samples and optimizer.
	prepare(s *student) (loop, error)
}

// usual are the values of options of a method that are not given.
type usual struct {
	rate, adapterRate float64 // of a full fine-tune, and of an adapter
	beta              float64
	unit              string // that the progress line counts: what losses are means over
}

// rate returns the learning rate.
func (j *job) rate() float64 {
	u := j.method().usual()
	switch {
	case j.LearningRate > 0:
		return j.LearningRate
	case j.LoRA != "":
		return u.adapterRate
	}
	return u.rate
}

// beta returns --beta, or the method's own.
func (j *job) beta() float64 {
	if j.Beta == ownBeta {
		return j.method().usual().beta
	}
	return j.Beta
}

// ownBeta stands for the beta of the method.
const ownBeta = -1

// methods are those of --method, whose tag names them.
var methods = map[string]method{"sft": texting{}, "dpo": dpo{}, "orpo": orpo{}, "kto": kto{}, "grpo": grpo{}, "reward": rewardModel{}}

// method returns that of --method, which checkNames has checked.
func (j *job) method() method { return methods[j.Method] }

// checkMethod rejects options that the method does not have.
func (j *job) checkMethod() error {
	usual := reflect.ValueOf(Defaults())
	for field, v := range reflect.ValueOf(j.Options).Elem().Fields() {
		of := field.Tag.Get("methods")
		if of == "" || slices.Contains(strings.Split(of, ","), j.Method) {
			continue
		}
		if !reflect.DeepEqual(v.Interface(), usual.FieldByIndex(field.Index).Interface()) {
			return misusef("%s needs --method %s, got --method %s", flag(field), either(strings.Split(of, ",")), j.Method)
		}
	}
	return j.method().check(j)
}

// either joins names: a, b or c.
func either(names []string) string {
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " or " + names[n]
	}
	return strings.Join(names, "")
}
