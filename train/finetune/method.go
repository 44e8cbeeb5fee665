package finetune

import (
	"reflect"
	"slices"
	"strings"

	"github.com/heftai/heft/train/data"
)

// method is a value of --method. It determines what records become and what is learned from them.
type method interface {
	// check rejects values of options that the method does not support. Options whose tag "methods"
	// omits the method have their defaults.
	check(j *job) error
	// usual returns the defaults of options that depend on the method.
	usual() usual
	// metrics returns the names of the metrics of evaluations besides the loss.
	metrics(j *job) []string
	// read tokenises the data into samples.
	read(j *job, tokenizer *data.Tokenizer, o data.TextOptions) (*texts, error)
	// prepare connects a rank's model, samples and optimizer to a training loop.
	prepare(s *student) (loop, error)
}

// usual has the defaults of options that depend on the method.
type usual struct {
	rate, adapterRate float64 // for a full fine-tune, and for an adapter
	beta              float64
	unit              string // of the progress line: what losses are averaged over
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

// beta returns --beta, or the method's default.
func (j *job) beta() float64 {
	if j.Beta == ownBeta {
		return j.method().usual().beta
	}
	return j.Beta
}

// ownBeta means the method's default beta.
const ownBeta = -1

// methods are the methods by their name in --method.
var methods = map[string]method{"sft": sft{}, "dpo": dpo{}, "orpo": orpo{}, "kto": kto{}, "grpo": grpo{}, "reward": rewardModel{}}

// method returns the method of --method, which checkNames has checked.
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

// either joins names as in: a, b or c.
func either(names []string) string {
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " or " + names[n]
	}
	return strings.Join(names, "")
}
