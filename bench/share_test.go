package bench

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// anything gives v a random value that is not zero, through all its fields, hidden ones included: a field that is added later has one too.
func anything(rng *rand.Rand, v reflect.Value) {
	switch k := v.Kind(); {
	case k == reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			anything(rng, reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem())
		}
	case k == reflect.Array:
		for i := range v.Len() {
			anything(rng, v.Index(i))
		}
	case k == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		anything(rng, v.Index(0))
		anything(rng, v.Index(1))
	case k == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		anything(rng, v.Elem())
	case k == reflect.Bool:
		v.SetBool(true)
	case k == reflect.String:
		v.SetString(fmt.Sprint("text ", rng.IntN(3)))
	case v.CanInt():
		v.SetInt(1 + rng.Int64N(100))
	case v.CanUint():
		v.SetUint(1 + rng.Uint64N(100))
	case v.CanFloat():
		v.SetFloat(1 + rng.Float64())
	}
}

// spelled turns a value into maps and texts that can be compared, through all its fields.
func spelled(v reflect.Value) any {
	switch {
	case v.Type() == reflect.TypeFor[histogram]():
		h := (*histogram)(v.Addr().UnsafePointer())
		if h.h == nil {
			return nil
		}
		return fmt.Sprint(h.encode(), h.max, h.sum, h.over)
	case v.Kind() == reflect.Struct:
		m := map[string]any{}
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "mu" && name != "history" { // what guards the figures, and how they are gathered
				m[name] = spelled(v.Field(i))
			}
		}
		return m
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return spelled(v.Elem())
	case v.Kind() == reflect.Map:
		m := map[string]any{}
		for k, of := range v.Seq2() {
			m[fmt.Sprint(k)] = spelled(of)
		}
		return m
	case v.Kind() == reflect.Slice, v.Kind() == reflect.Array:
		all := make([]any, v.Len())
		for i := range all {
			all[i] = spelled(v.Index(i))
		}
		return all
	}
	return fmt.Sprint(v)
}

// filled notes of each place in a value that spelled has made whether it holds anything. Places in a list are one, and so are those in a map
// by number.
func filled(at string, v any, holds map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		holds[at] = holds[at] || len(v) > 0
		for name, of := range v {
			if strings.Trim(name, "-0123456789") == "" {
				name = "*"
			}
			filled(at+"."+name, of, holds)
		}
	case []any:
		holds[at] = holds[at] || len(v) > 0
		for _, of := range v {
			filled(at+"[*]", of, holds)
		}
	default:
		holds[at] = holds[at] || v != nil && !slices.Contains([]any{"0", "0s", "false", "", "<nil>"}, v)
	}
}

// differences says where two values that spelled has made are not the same.
func differences(at string, a, b any) (all []string) {
	m, ok := a.(map[string]any)
	n, too := b.(map[string]any)
	x, many := a.([]any)
	y, both := b.([]any)
	switch {
	case many && both && len(x) == len(y):
		for i := range x {
			all = append(all, differences(fmt.Sprintf("%s[%d]", at, i), x[i], y[i])...)
		}
	case !ok || !too:
		if !reflect.DeepEqual(a, b) {
			return []string{fmt.Sprintf("%s is %v and was %v", at, b, a)}
		}
	default:
		for name := range m {
			all = append(all, differences(at+"."+name, m[name], n[name])...)
		}
		for name := range n {
			if _, there := m[name]; !there {
				all = append(all, at+"."+name+" was not there")
			}
		}
	}
	return all
}

// TestSharesAddUp: what several processes hand over adds up to what one process would have counted, in every field. Operations are drawn
// and figures compared through all fields there are, so that one which is added and forgotten on the way is noticed.
func TestSharesAddUp(t *testing.T) {
	const warm = 10 * time.Second
	classes := []string{"young", "old", "ageless"}
	begin := func() *recorder {
		r := newRecorder(1, true, warm, &Live{}, classes)
		r.until = time.Minute
		r.shards[0].told.history = true
		return r
	}
	holds := map[string]bool{}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		of := 1 + int(seed%5)
		whole, parts := begin(), make([]*recorder, of)
		for i := range parts {
			parts[i] = begin()
		}
		for op := range 60 {
			d := &done{}
			anything(rng, reflect.ValueOf(d).Elem())
			d.told.Outcome = Outcomes()[op%len(Outcomes())]
			d.told.Class = uint8(rng.IntN(len(classes)))
			d.told.Request.Key, d.told.Answer.Key = 1+rng.Int64N(5), 1+rng.Int64N(5)
			d.due = warm + time.Duration(op)*time.Second - time.Second // the first is part of the warm-up
			d.told.Start = d.due + time.Duration(rng.IntN(1000))*time.Millisecond
			d.told.End = d.told.Start + time.Duration(1+rng.IntN(5000))*time.Millisecond + time.Duration(op)
			if op == 1 {
				d.cut, d.told.End = 0, d.told.Start+2*time.Hour // beyond the buckets
			}
			d.err = fmt.Errorf("broke at %d", rng.IntN(maxErrors-1))
			whole.record(0, d)
			same := *d
			parts[rng.IntN(of)].record(0, &same)
		}
		var shares []*Share
		apart := 0.0
		for _, p := range parts {
			s := &Share{}
			anything(rng, reflect.ValueOf(s).Elem())
			s.tally, s.Lost = p.merged(), ""
			apart = max(apart, *s.Began)
			b, err := s.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			var came Share
			if err := came.UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
			if err := new(Share).UnmarshalBinary(b[:len(b)/2]); err == nil {
				t.Error("half a share was taken for a whole one")
			}
			for _, d := range differences("share", spelled(reflect.ValueOf(s)), spelled(reflect.ValueOf(&came))) {
				t.Errorf("seed %d: on the way %s", seed, d)
			}
			shares = append(shares, &came)
		}
		got, lost := gather(shares)
		if lost {
			t.Error("a share is said to be lost")
		}
		whole.shards[0].told.sort()
		if of > 1 { // with one process, moments are of one clock
			whole.shards[0].told.Apart = time.Duration(apart * float64(time.Millisecond))
		}
		want := spelled(reflect.ValueOf(whole.shards[0]))
		for _, d := range differences("tally", want, spelled(reflect.ValueOf(got))) {
			t.Errorf("seed %d, %d processes: %s", seed, of, d)
		}
		filled("tally", want, holds)
		if was, is := whole.shards[0].figures(time.Minute, true), got.figures(time.Minute, true); !reflect.DeepEqual(was, is) {
			t.Errorf("seed %d: figures are\n%+v\nand were\n%+v", seed, is, was)
		}
		if t.Failed() {
			return
		}
	}
	for name, held := range holds {
		if !held {
			t.Errorf("%s is not tested, as it never holds anything", name)
		}
	}
}
