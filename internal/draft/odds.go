package draft

// A Class is what is known of a guess beforehand.
type Class uint8

// classes are five of lookups, by agreeing tokens (1, 2–3, 4–7, 8–15, 16 and more), five of draft
// models, by the probability that the model gives its guess (below 0.4, 0.6, 0.8, 0.95, up to 1), and four of lookups at
// places that were themselves guessed from an earlier place, wrong or right, behind fewer than four agreeing tokens or more.
const classes = 14

const changed, kept Class = 10, 12

// Agreeing is the class of a guess by a [Lookup], behind so many agreeing tokens.
func Agreeing(match int) Class {
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

// Confident is the class of a guess that a draft model gives a probability.
func Confident(p float64) Class {
	switch {
	case p < 0.4:
		return 5
	case p < 0.6:
		return 6
	case p < 0.8:
		return 7
	case p < 0.95:
		return 8
	}
	return 9
}

// first are the odds before anything is known.
var first = [classes]float64{0.3, 0.3, 0.5, 0.7, 0.8, 0.3, 0.5, 0.65, 0.8, 0.93, 0.1, 0.2, 0.8, 0.9}

const (
	fade   = 31.0 / 32 // of what is known, with each guess
	weight = 3         // of what a parent knows, in guesses
)

// Odds are how often guesses of a text were right, by [Class]. The zero value knows nothing.
type Odds struct {
	right, seen [classes]float64
}

// Note records whether a guess of a class was right. The recent count more.
func (o *Odds) Note(k Class, right bool) {
	o.seen[k] = o.seen[k]*fade + 1
	o.right[k] *= fade
	if right {
		o.right[k]++
	}
}

// Of is the chance that a guess of a class is right. For a class that o has not seen it asks parent, the
// odds of all texts, which may be nil.
func (o *Odds) Of(k Class, parent *Odds) float64 {
	before := first[k]
	if parent != nil {
		before = parent.Of(k, nil)
	}
	return (o.right[k] + weight*before) / (o.seen[k] + weight)
}
