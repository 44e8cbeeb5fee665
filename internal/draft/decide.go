package draft

// margin is how much faster a pass with guesses must be expected to be.
const margin = 1.03

// An Offer is the guesses for one text.
type Offer struct {
	Tokens  []int32
	Chances []float64 // of each token: that it is right if those before it are
	Take    int       // set by Decide: how many of Tokens to verify

	chance float64 // that the guesses so far and the next one are right
	taken  int
}

// Decide sets how many tokens of each offer a pass should verify that has base tokens without them, for
// as many texts as yield a token each. At most most guesses are taken in all.
func Decide(costs *Costs, base, yield, most int, offers []Offer) {
	for i := range offers {
		offers[i].Take, offers[i].taken, offers[i].chance = 0, 0, 1
		offers[i].next()
	}
	if !costs.ready(base) {
		return
	}
	most = min(most, costs.reach(base)-base)
	tokens := float64(yield)
	best := margin * tokens / costs.seconds(base, base)
	for n := 1; n <= most; n++ {
		o := likeliest(offers)
		if o == nil {
			return
		}
		tokens += o.chance
		o.taken++
		o.next()
		if rate := tokens / costs.seconds(base+n, base); rate > best {
			best = rate
			for i := range offers {
				offers[i].Take = offers[i].taken
			}
		}
	}
}

// next counts the chance of the next token in.
func (o *Offer) next() {
	if o.taken < len(o.Tokens) {
		o.chance *= o.Chances[o.taken]
	}
}

// likeliest is the offer whose next guess is most probably right; nil if all are taken.
func likeliest(offers []Offer) *Offer {
	var best *Offer
	for i := range offers {
		if o := &offers[i]; o.taken < len(o.Tokens) && (best == nil || o.chance > best.chance) {
			best = o
		}
	}
	return best
}

// Worth returns for how many texts one more guess each is worth a pass of a draft model, which makes all of them
// and takes draft seconds: that many, the likeliest first, save most time beside what the pass and the tokens to verify
// take. chances are those that the guesses are right, the highest first. base is the number of tokens without
// guesses, for as many texts as yield a token each.
func Worth(costs *Costs, base, yield int, chances []float64, draft float64) int {
	sum, best, count := 0.0, 0.0, 0
	for i, p := range chances {
		saved, known := Saves(costs, base, yield, p, 0)
		if sum += saved; known && sum-draft > best {
			best, count = sum-draft, i+1
		}
	}
	return count
}

// Saves returns the seconds that a guess saves, which is right with the given chance and takes draft seconds, negative if
// it takes more. They are not known before passes of base tokens are measured.
func Saves(costs *Costs, base, yield int, chance, draft float64) (seconds float64, known bool) {
	if !costs.ready(base) {
		return 0, false
	}
	pass := costs.seconds(base, base)
	more := max(costs.seconds(costs.reach(base), base)-pass, 0) / float64(costs.reach(base)-base)
	return chance*pass/float64(yield) - draft - more, true
}

// Pass estimates how long a pass of base tokens takes, and one of n tokens, 0 if it is not known.
func (c *Costs) Pass(base, n int) (without, with float64) {
	if base < 1 || !c.ready(base) {
		return 0, 0
	}
	return c.seconds(base, base), c.seconds(min(n, maxCost), base)
}
