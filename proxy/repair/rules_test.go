package repair

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

var (
	longStrong = "call_" + strings.Repeat("9fK2xQ7b", 100)
	longWeak   = strings.Repeat("run-tool-", 100)
)

func TestWhereARecordBelongs(t *testing.T) {
	unstable := whole
	unstable.Stable = false
	renewed := unstable
	renewed.Exact = "renewed"
	stranger := renewed
	stranger.Session = "a stranger's"
	unclaimed := whole
	unclaimed.Session = ""
	for _, tt := range []struct {
		name    string
		tenant  Tenant // zero for whole
		records []kept
		units   []unit
		want    string
	}{
		// By strong ids.
		{name: "a strong call id finds its record, whatever stands before it",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "?", all: "?"}}, want: "0 put A"},
		{name: "a unit that says something else than was shown is edited, and loses the notices",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", put: "A", notice: "N"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "other"}}, want: "0 put A edited without N"},
		{name: "a unit that says what was shown keeps no word of the client's, so no notice is named",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", put: "A", notice: "N"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s"}}, want: "0 put A"},
		{name: "one strong id is enough when the lists of ids are equal",
			records: []kept{{calls: "call_0 call_9fK2xQ7b", says: "s", put: "A"}},
			units:   []unit{{calls: "call_0 call_9fK2xQ7b", says: "other"}}, want: "0 put A edited"},
		{name: "another list of ids is no match by ids",
			records: []kept{{calls: "call_9fK2xQ7b call_8fK2xQ7b", says: "s", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "other", last: "l"}}, want: ""},
		{name: "another order of ids is no match by ids",
			records: []kept{{calls: "call_9fK2xQ7b call_8fK2xQ7b", says: "s", put: "A"}},
			units:   []unit{{calls: "call_8fK2xQ7b call_9fK2xQ7b", says: "other"}}, want: ""},
		{name: "a known id in another list is no match by ids, but may be by digests",
			records: []kept{{calls: "call_9fK2xQ7b call_8fK2xQ7b", says: "s", last: "l", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b x", says: "s", last: "l"}}, want: "0 put A"},
		{name: "an id in two units of the history is no anchor",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", last: "l", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "other", last: "l"}, {calls: "call_9fK2xQ7b", says: "s", last: "?"}}, want: ""},
		{name: "an id in two units of the history leaves it to the digests",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", last: "l", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "other", last: "l"}, {calls: "call_9fK2xQ7b", says: "s", last: "l"}}, want: "1 put A"},
		{name: "the other id of a list may be in this unit only",
			records: []kept{{calls: "call_9fK2xQ7b call_8fK2xQ7b", says: "s", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b call_8fK2xQ7b", says: "s"}, {calls: "call_9fK2xQ7b", says: "t"}}, want: "0 put A"},
		{name: "an id twice in one unit is in one unit",
			records: []kept{{calls: "call_9fK2xQ7b call_9fK2xQ7b", says: "s", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b call_9fK2xQ7b", says: "other"}}, want: "0 put A edited"},
		{name: "weak ids anchor nothing",
			records: []kept{{calls: "call_0 list_dir:12 run_terminal", says: "s", last: "l", put: "A"}},
			units:   []unit{{calls: "call_0 list_dir:12 run_terminal", says: "other", last: "l"}}, want: ""},

		// Several by strong ids.
		{name: "of several with the same ids the one with the same message before it",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", last: "l", put: "A"}, {calls: "call_9fK2xQ7b", says: "s", last: "m", put: "B"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "m"}}, want: "0 put B"},
		{name: "then the one with everything before it the same",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a", put: "A"}, {calls: "call_9fK2xQ7b", says: "s", last: "l", all: "b", put: "B"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a"}}, want: "0 put A"},
		{name: "then the one of the claimed session",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", put: "A", session: "else"}, {calls: "call_9fK2xQ7b", says: "s", put: "B"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s"}}, want: "0 put B"},
		{name: "the session decides nothing when none is claimed", tenant: unclaimed,
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", put: "A", session: "else"}, {calls: "call_9fK2xQ7b", says: "s", put: "B"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s"}}, want: "1 ambiguous"},
		{name: "the message before it goes before the session",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", last: "l", put: "A", session: "else"}, {calls: "call_9fK2xQ7b", says: "s", last: "m", put: "B"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "l"}}, want: "0 put A"},
		{name: "several that put the same back are one",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", put: "A"}, {calls: "call_9fK2xQ7b", says: "s", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s"}}, want: "0 put A"},
		{name: "several that put different things back are none",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", last: "l", put: "A"}, {calls: "call_9fK2xQ7b", says: "s", last: "l", put: "B"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "l"}}, want: "1 ambiguous"},
		{name: "of two that put the same back the one that still can",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", put: "A", gone: true}, {calls: "call_9fK2xQ7b", says: "s", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s"}}, want: "0 put A"},
		{name: "one that is gone may have put back something else",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", put: "A", gone: true}, {calls: "call_9fK2xQ7b", says: "s", put: "B"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s"}}, want: "1 ambiguous"},
		{name: "several that are gone with bound thinking do the same",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", put: "A", gone: true, bound: true}, {calls: "call_9fK2xQ7b", says: "s", put: "B", gone: true, bound: true}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s"}}, want: "0 unbind"},

		{name: "a long id finds its record",
			records: []kept{{calls: longStrong, says: "s", put: "A"}},
			units:   []unit{{calls: longStrong, says: "other"}}, want: "0 put A edited"},
		{name: "another long id does not",
			records: []kept{{calls: longStrong, says: "s", put: "A"}},
			units:   []unit{{calls: longStrong + "x", says: "s"}}, want: ""},
		{name: "a long weak id stays a weak one",
			records: []kept{{calls: longWeak, says: "s", put: "A"}},
			units:   []unit{{calls: longWeak, says: "other"}}, want: ""},
		{name: "a long id of an answer finds its record",
			records: []kept{{answer: longStrong, says: "s", put: "A"}},
			units:   []unit{{answer: longStrong}}, want: "0 put A"},
		{name: "several that are gone and not all of them bound do not do the same",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", put: "A", gone: true}, {calls: "call_9fK2xQ7b", says: "s", put: "B", gone: true}, {calls: "call_9fK2xQ7b", says: "s", put: "A", gone: true, bound: true}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s"}}, want: "0 unbind, 1 ambiguous"},

		// By digests.
		{name: "a text behind the same message",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{says: "s", last: "l", all: "?"}}, want: "0 put A"},
		{name: "a text behind another message is no match",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{says: "s", last: "m", all: "a"}}, want: ""},
		{name: "another text is no match",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{says: "t", last: "l", all: "a"}}, want: ""},
		{name: "weak ids count for nothing by digests",
			records: []kept{{calls: "call_0", says: "s", last: "l", put: "A"}},
			units:   []unit{{calls: "call_7", says: "s", last: "l"}}, want: "0 put A"},
		{name: "of several the one with everything before it the same",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}, {says: "s", last: "l", all: "b", put: "B"}},
			units:   []unit{{says: "s", last: "l", all: "b"}}, want: "0 put B"},
		{name: "then the one of the claimed session, by digests",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}, {says: "s", last: "l", all: "b", put: "B", session: "else"}},
			units:   []unit{{says: "s", last: "l", all: "?"}}, want: "0 put A"},
		{name: "everything before it goes before the session",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}, {says: "s", last: "l", all: "b", put: "B", session: "else"}},
			units:   []unit{{says: "s", last: "l", all: "b"}}, want: "0 put B"},
		{name: "the session alone is no reason",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{says: "s", last: "?", all: "?"}}, want: ""},
		{name: "equal ones are one, by digests",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}, {says: "s", last: "l", all: "b", put: "A"}},
			units:   []unit{{says: "s", last: "l", all: "?"}}, want: "0 put A"},
		{name: "different ones are none, by digests",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}, {says: "s", last: "l", all: "b", put: "B"}},
			units:   []unit{{says: "s", last: "l", all: "?"}}, want: "1 ambiguous"},

		// Several units.
		{name: "of two units that say the same the record is the one's with everything before it the same",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{says: "s", last: "l", all: "b"}, {says: "s", last: "l", all: "a"}}, want: "1 put A"},
		{name: "two units behind the same exchange cannot share a record",
			records: []kept{{says: "s", last: "l", all: "a", behind: "x k", put: "A"}},
			units:   []unit{{says: "x", last: "k"}, {says: "s", last: "l", all: "?"}, {says: "x", last: "k"}, {says: "s", last: "l", all: "??"}}, want: "2 ambiguous"},
		{name: "of two units the record is the one's behind the same exchange",
			records: []kept{{says: "s", last: "l", all: "a", behind: "x k", put: "A"}},
			units:   []unit{{says: "s", last: "l", all: "?"}, {says: "x", last: "k"}, {says: "s", last: "l", all: "??"}}, want: "2 put A"},
		{name: "the session is no reason behind another exchange, where that says something else",
			records: []kept{{says: "s", last: "l", all: "a", behind: "x k", put: "A"}},
			units:   []unit{{says: "y", last: "k"}, {says: "s", last: "l", all: "?"}}, want: ""},
		{name: "the session is no reason behind another exchange, where the message before that is another",
			records: []kept{{says: "s", last: "l", all: "a", behind: "x k", put: "A"}},
			units:   []unit{{says: "x", last: "m"}, {says: "s", last: "l", all: "?"}}, want: ""},
		{name: "the session is no reason for a first answer where another stood before",
			records: []kept{{says: "s", last: "l", all: "a", behind: "x k", put: "A"}},
			units:   []unit{{says: "s", last: "l", all: "?"}}, want: ""},
		{name: "the session is no reason for a later answer where it was the first",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{says: "x", last: "k"}, {says: "s", last: "l", all: "?"}}, want: ""},
		{name: "two units and their two records",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}, {says: "s", last: "l", all: "b", put: "B"}},
			units:   []unit{{says: "s", last: "l", all: "a"}, {says: "s", last: "l", all: "b"}}, want: "0 put A, 1 put B"},
		{name: "what is left when one is known belongs to the other",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}, {says: "s", last: "l", all: "b", put: "B"}},
			units:   []unit{{says: "s", last: "l", all: "?"}, {says: "s", last: "l", all: "b"}}, want: "0 put A, 1 put B"},
		{name: "two units and two records that put the same back",
			records: []kept{{says: "s", last: "l", all: "a", behind: "x k", put: "A"}, {says: "s", last: "l", all: "b", behind: "x k", put: "A"}},
			units:   []unit{{says: "x", last: "k"}, {says: "s", last: "l", all: "?"}, {says: "x", last: "k"}, {says: "s", last: "l", all: "??"}}, want: "1 put A, 3 put A"},
		{name: "two units and their two records of one session that differ are none's",
			records: []kept{{says: "s", last: "l", all: "a", behind: "x k", put: "A", bound: true}, {says: "s", last: "l", all: "b", behind: "x k", put: "B"}},
			units:   []unit{{says: "x", last: "k"}, {says: "s", last: "l", all: "?"}, {says: "x", last: "k"}, {says: "s", last: "l", all: "??"}}, want: "1 unbind, 3 unbind, 2 ambiguous"},
		{name: "units that say the same behind the same calls cannot share a record",
			records: []kept{{says: "s", last: "l", all: "a", before: "call_9fK2xQ7b", put: "A", session: "else"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "x"}, {says: "s", last: "l", all: "?"}, {calls: "call_9fK2xQ7b", says: "x"}, {says: "s", last: "l", all: "??"}},
			want:    "2 ambiguous"},
		{name: "units behind the same calls that cannot share a record think no more",
			records: []kept{{says: "s", last: "l", all: "a", before: "call_9fK2xQ7b", put: "A", bound: true}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "x"}, {says: "s", last: "l", all: "?"}, {calls: "call_9fK2xQ7b", says: "x"}, {says: "s", last: "l", all: "??"}},
			want:    "1 unbind, 3 unbind, 2 ambiguous"},
		{name: "of units behind the same calls the record is the one's with everything before it the same, and not the other's",
			records: []kept{{says: "s", last: "l", all: "a", before: "call_9fK2xQ7b", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "x"}, {says: "s", last: "l", all: "?"}, {calls: "call_9fK2xQ7b", says: "x"}, {says: "s", last: "l", all: "a"}},
			want:    "3 put A"},
		{name: "units behind the same calls have one of two equal records each",
			records: []kept{{says: "s", last: "l", all: "a", before: "call_9fK2xQ7b", put: "A"}, {says: "s", last: "l", all: "b", before: "call_9fK2xQ7b", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "x"}, {says: "s", last: "l", all: "?"}, {calls: "call_9fK2xQ7b", says: "x"}, {says: "s", last: "l", all: "??"}},
			want:    "1 put A, 3 put A"},
		{name: "three units cannot share two equal records",
			records: []kept{{says: "s", last: "l", all: "a", behind: "s l", put: "A"}, {says: "s", last: "l", all: "b", behind: "s l", put: "A"}},
			units:   []unit{{says: "s", last: "l", all: "0"}, {says: "s", last: "l", all: "1"}, {says: "s", last: "l", all: "2"}, {says: "s", last: "l", all: "3"}}, want: "3 ambiguous"},
		{name: "the same place twice, to the first message, cannot share a record",
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{says: "s", last: "l", all: "a"}, {says: "s", last: "l", all: "a"}}, want: "2 ambiguous"},
		{name: "a record of an answer that the provider holds is not found again by an id",
			records: []kept{{answer: "msg_01", calls: "call_9fK2xQ7b", says: "s", last: "l", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "l"}, {answer: "msg_01"}}, want: "1 put A"},
		{name: "a record that was found by an id is not found again by digests",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", last: "l", put: "A"}},
			units:   []unit{{calls: "x", says: "s", last: "l"}, {calls: "call_9fK2xQ7b", says: "s", last: "?"}}, want: "1 put A"},

		// What is bound.
		{name: "a cut conversation is its client's affair",
			records: []kept{{says: "s", last: "l", put: "A", bound: true}},
			units:   []unit{{says: "t", last: "l"}, {says: "s", last: "m"}}, want: ""},
		{name: "a record that was found is of no cut conversation",
			records: []kept{{says: "s", last: "l", put: "A", bound: true}},
			units:   []unit{{says: "s", last: "m"}, {says: "s", last: "l"}}, want: "1 put A"},
		{name: "a gone body leaves what was not bound as it is",
			records: []kept{{says: "s", last: "l", put: "A", gone: true}},
			units:   []unit{{says: "s", last: "l"}}, want: "1 lost"},
		{name: "a gone body unbinds what was bound",
			records: []kept{{says: "s", last: "l", put: "A", gone: true, bound: true}},
			units:   []unit{{says: "s", last: "l"}}, want: "0 unbind"},
		{name: "a gone body that an id finds unbinds what was bound",
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", put: "A", gone: true, bound: true}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "other"}}, want: "0 unbind"},
		{name: "bound thinking is taken out where several records fit",
			records: []kept{{says: "s", last: "l", all: "a", put: "A", bound: true}, {says: "s", last: "l", all: "a", put: "B"}},
			units:   []unit{{says: "s", last: "l", all: "a"}}, want: "0 unbind, 1 ambiguous"},

		// Without a stable identity, with the same credential.
		{name: "the rules are the same for the same credential", tenant: unstable,
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}, {calls: "call_9fK2xQ7b", says: "t", put: "B"}},
			units:   []unit{{says: "s", last: "l", all: "?"}, {calls: "call_9fK2xQ7b", says: "other"}}, want: "0 put A, 1 put B edited"},
		{name: "the same credential's two records of one chain", tenant: unstable,
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}, {says: "s", last: "l", all: "a", put: "B"}},
			units:   []unit{{says: "s", last: "l", all: "a"}}, want: "1 ambiguous"},
		{name: "the same credential's answer is found by a weak id", tenant: unstable,
			records: []kept{{answer: "msg_01", put: "A"}},
			units:   []unit{{answer: "msg_01"}}, want: "0 put A"},

		// With another one.
		{name: "the whole chain is wanted of a renewed credential", tenant: renewed,
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{says: "s", last: "l", all: "a"}}, want: "0 put A"},
		{name: "all before it must be the same", tenant: renewed,
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{says: "s", last: "l", all: "b"}}, want: ""},
		{name: "the message before it must be the same", tenant: renewed,
			records: []kept{{says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{says: "s", last: "m", all: "a"}}, want: ""},
		{name: "the unit before it is not enough", tenant: renewed,
			records: []kept{{says: "s", last: "l", all: "a", before: "call_9fK2xQ7b", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "x"}, {says: "s", last: "l", all: "b"}}, want: ""},
		{name: "an id wants the whole chain too", tenant: renewed,
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "b"}}, want: ""},
		{name: "an id with the whole chain", tenant: renewed,
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a"}}, want: "0 put A"},
		{name: "a unit of a renewed credential's is never edited", tenant: renewed,
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a", put: "A"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "other", last: "l", all: "a"}}, want: ""},
		{name: "a renewed credential's whole chain with a gone body", tenant: renewed,
			records: []kept{{says: "s", last: "l", all: "a", put: "A", gone: true, bound: true}},
			units:   []unit{{says: "s", last: "l", all: "a"}}, want: "0 unbind"},
		{name: "a record of the same credential counts by an id when one of another does not", tenant: renewed,
			records: []kept{{calls: "call_9fK2xQ7b", says: "s", put: "A"}, {calls: "call_9fK2xQ7b", says: "s", put: "B", exact: "renewed"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "l"}}, want: "0 put B"},
		{name: "a record of the same credential counts by digests when one of another does not", tenant: renewed,
			records: []kept{{says: "s", last: "l", put: "A"}, {says: "s", last: "l", put: "B", exact: "renewed"}},
			units:   []unit{{says: "s", last: "l", all: "?"}}, want: "0 put B"},
		{name: "a renewed credential's answer is found by a strong id", tenant: renewed,
			records: []kept{{answer: "msg_9fK2xQ7b", put: "A"}},
			units:   []unit{{answer: "msg_9fK2xQ7b"}}, want: "0 put A"},
		{name: "a renewed credential's answer is not found by a weak id", tenant: renewed,
			records: []kept{{answer: "msg_01", put: "A"}},
			units:   []unit{{answer: "msg_01"}}, want: ""},
		{name: "another session finds nothing of another credential's", tenant: stranger,
			records: []kept{{calls: "call_9fK2xQ7b", answer: "msg_9fK2xQ7b", says: "s", last: "l", all: "a", put: "A", bound: true}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a"}, {says: "s", last: "l", all: "a"}, {answer: "msg_9fK2xQ7b"}}, want: ""},

		// Answers that the provider holds.
		{name: "the id of an answer finds its record",
			records: []kept{{answer: "msg_01", says: "s", put: "A"}},
			units:   []unit{{answer: "msg_01"}}, want: "0 put A"},
		{name: "another answer was not altered",
			records: []kept{{answer: "msg_01", says: "s", put: "A"}},
			units:   []unit{{answer: "msg_02"}}, want: ""},
		{name: "an answer's record is found by what it says where the history is sent",
			records: []kept{{answer: "msg_01", says: "s", last: "l", put: "A"}},
			units:   []unit{{says: "s", last: "l"}}, want: "0 put A"},
		{name: "a unit that names an answer is found by that alone",
			records: []kept{{says: "", last: "", put: "A"}, {calls: "call_9fK2xQ7b", says: "", put: "B"}},
			units:   []unit{{answer: "msg_01", calls: "call_9fK2xQ7b"}}, want: ""},

		// Whose.
		{name: "another tenant's record is not found by ids",
			records: []kept{{tenant: "else", calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a", put: "A"}, {calls: "call_1", says: "x", put: "B"}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a"}}, want: ""},
		{name: "another tenant's record is not found by digests",
			records: []kept{{tenant: "else", says: "s", last: "l", all: "a", put: "A", bound: true}, {says: "x", put: "B"}},
			units:   []unit{{says: "s", last: "l", all: "a"}, {says: "s", last: "m", all: "a"}}, want: ""},
		{name: "another dialect's record is not found",
			records: []kept{{family: "else", calls: "call_9fK2xQ7b", answer: "msg_01", says: "s", last: "l", all: "a", put: "A", bound: true}},
			units:   []unit{{calls: "call_9fK2xQ7b", says: "s", last: "l", all: "a"}, {says: "s", last: "l", all: "a"}, {answer: "msg_01"}}, want: ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.tenant == (Tenant{}) {
				tt.tenant = whole
			}
			for i := range tt.records {
				tt.records[i].id = fmt.Sprint("record ", i)
			}
			b, _ := bookOf(t, tt.records...)
			h := &history{units: tt.units}
			f := find(t, b, tt.tenant, h)
			if got := words(f); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			if id := putTwice(f); id != "" {
				t.Errorf("%s is put back twice", id)
			}
		})
	}
}

func TestAnAnswerThatCannotBeMadeRightIsAnError(t *testing.T) {
	for _, tt := range []struct {
		name    string
		records []kept
		want    string
		lost    bool
	}{
		{"its body is gone", []kept{{answer: "msg_01", put: "A", gone: true}}, "no longer known", true},
		{"two records of it differ", []kept{{answer: "msg_01", put: "A"}, {answer: "msg_01", put: "B"}}, "several", false},
		{"it is named twice", []kept{{answer: "msg_02", put: "B"}, {answer: "msg_01", put: "A"}}, "twice", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, _ := bookOf(t, tt.records...)
			f, err := b.Find(t.Context(), whole, &history{units: []unit{{says: "x"}, {answer: "msg_02"}, {answer: "msg_01"}, {answer: "msg_01"}}})
			if err == nil || f.Mends != nil || errors.Is(err, ErrLost) != tt.lost {
				t.Fatalf("found %+v, %v", f, err)
			}
			for _, w := range []string{"repair: ", `"msg_01"`, tt.want, "begin a new conversation"} {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not say %q: %v", w, err)
				}
			}
		})
	}
}

func TestWhatIsCounted(t *testing.T) {
	b, _ := bookOf(t,
		kept{calls: "call_1fK2xQ7b", says: "1", put: "A", refusals: 1},
		kept{calls: "call_2fK2xQ7b", says: "2", put: "B", refusals: 2},
		kept{calls: "call_3fK2xQ7b", says: "3", put: "C", refusals: 4},
		kept{says: "4", last: "l", put: "D", refusals: 8, gone: true, bound: true},
		kept{says: "5", last: "l", put: "E", refusals: 16, gone: true},
		kept{says: "6", last: "l", behind: "5 l", put: "F", refusals: 32}, kept{says: "6", last: "l", behind: "5 l", put: "G", refusals: 64},
	)
	units := []unit{
		{calls: "call_1fK2xQ7b", says: "1"}, {calls: "call_2fK2xQ7b", says: "2"}, {calls: "call_3fK2xQ7b", says: "edited"},
		{says: "4", last: "l"}, {says: "5", last: "l"}, {says: "6", last: "l", all: "?"},
	}
	for task, refused := range []int{7, 6, 4, 0, 0, 0, 0} {
		got := find(t, b, whole, &history{units: units, task: task})
		if n := len(got.Mends); n != 4 {
			t.Errorf("%d units are mended", n)
		}
		got.Mends = nil
		want := Found{Mended: 3, Edited: 1, Unbound: 1, Lost: 1, Ambiguous: 1, Refused: refused}
		if got.Mended != want.Mended || got.Edited != want.Edited || got.Unbound != want.Unbound ||
			got.Lost != want.Lost || got.Ambiguous != want.Ambiguous || got.Refused != want.Refused {
			t.Errorf("task at %d: counted %+v, want %+v", task, got, want)
		}
	}
}

func TestDigestsAreAskedForOnlyWhereTheyDecide(t *testing.T) {
	records := []kept{
		{calls: "call_9fK2xQ7b", says: "s", last: "l", put: "A"},
		{says: "text", last: "l", put: "B"},
	}
	for _, tt := range []struct {
		name             string
		records          []kept
		units            []unit
		shown, last, all int
	}{
		{"a unit that a strong id settles, next to those that no record knows", records,
			[]unit{{calls: "call_9fK2xQ7b", says: "s"}, {calls: "call_8fK2xQ7b", says: "s"}, {calls: "call_7fK2xQ7b x", says: "s"}}, 1, 0, 0},
		{"texts that were never shown", records, []unit{{says: "x"}, {says: "y"}, {calls: "call_9fK2xQ7b", says: "s"}}, 3, 0, 0},
		{"a text that was shown", records, []unit{{says: "x"}, {says: "text", last: "l"}}, 2, 1, 1},
		{"a text that was shown behind something else", records, []unit{{says: "x"}, {says: "text", last: "l", all: "?"}}, 3, 2, 1},
		{"weak ids that are as many as no record has", records, []unit{{calls: "a b c", says: "x"}}, 0, 0, 0},
		{"texts when no record is without calls", records[:1], []unit{{says: "x"}, {says: "y"}}, 0, 0, 0},
		{"two texts for one record", records, []unit{{says: "text", last: "l", all: "1"}, {says: "text", last: "l", all: "2"}, {says: "x"}}, 4, 3, 2},
		{"two records for one id", []kept{{calls: "call_9fK2xQ7b", last: "l", put: "A"}, {calls: "call_9fK2xQ7b", last: "m", put: "B"}},
			[]unit{{calls: "call_9fK2xQ7b", last: "m"}}, 1, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, _ := bookOf(t, tt.records...)
			h := &history{units: tt.units}
			find(t, b, whole, h)
			if h.asked["shown"] != tt.shown || h.asked["last"] != tt.last || h.asked["all"] != tt.all {
				t.Errorf("asked for %v, want %d, %d, %d", h.asked, tt.shown, tt.last, tt.all)
			}
		})
	}
}

func TestStrongIds(t *testing.T) {
	for id, want := range map[string]bool{
		"call_9fK2xQ7b":                          true,
		"toolu_01T1x1fJ34qAmk2tNTrN7Up6":         true,
		"chatcmpl-tool-5f3c1d2e":                 true,
		"550e8400-e29b-41d4-a716-446655440000":   true,
		"D681PevKs":                              true,
		"9fK2xQ7b==":                             true,
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1": true,
		"1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": true,
		"":                                       false,
		"call_0":                                 false,
		"list_dir:0":                             false,
		"functions.run_terminal_command:12":      false,
		"run_terminal":                           false,
		"list_directory":                         false,
		"call_9fK2xQ7":                           false,
		"9fK2xQ7b_1":                             false,
		"-----------":                            false,
		"ééééééééé1":                             false,
	} {
		if strong(id) != want {
			t.Errorf("%q is strong: %v", id, !want)
		}
	}
}
