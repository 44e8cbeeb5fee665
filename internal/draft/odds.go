package draft

// classes are ranges of the number of agreeing tokens: 1, 2–3, 4–7, 8–15, 16 and more.
const classes = 5

func class(match int) int {
	switch {
	case match < 2:
		return 0
	case match < 4:
		return 1
	case match < 8:
		return 2
	case match < 16:
		return 3
	}
	return 4
}

// first are the odds before anything is known.
var first = [classes]float64{0.3, 0.3, 0.5, 0.7, 0.8}

const (
	fade   = 31.0 / 32 // of what is known, with each guess
	weight = 3         // of what a parent knows, in guesses
)

// Odds are how often guesses of a text were right. The zero value knows nothing.
type Odds struct {
	right, seen [classes]float64
}

// Note records whether a guess after match agreeing tokens was right. The recent count more.
func (o *Odds) Note(match int, right bool) {
	k := class(match)
	o.seen[k] = o.seen[k]*fade + 1
	o.right[k] *= fade
	if right {
		o.right[k]++
	}
}

// Of is the chance that a guess after match agreeing tokens is right. What o does not know yet it takes
// from parent, the odds of all texts, which may be nil.
func (o *Odds) Of(match int, parent *Odds) float64 {
	k := class(match)
	before := first[k]
	if parent != nil {
		before = parent.Of(match, nil)
	}
	return (o.right[k] + weight*before) / (o.seen[k] + weight)
}
