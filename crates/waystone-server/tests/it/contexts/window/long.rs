//! A conversation that is many times longer than the window of its model runs to its end.

use super::strict::{FILES, LIMIT, LOOK_UP, MORE, Strict, Told, left_out, told};

const TURNS: usize = FILES / 2;

impl Strict {
    /// Whether the model was told last of something that it can look up.
    fn can_look_up(&self) -> bool {
        left_out(&told(&self.talk.fake.requests().pop().unwrap())).is_some()
    }

    /// Lets the model look up what its window has only a handle of, and compares all that it is told with what it was told first.
    async fn look_up(&self) {
        let before = self.talk.fake.requests().len();
        self.ask(LOOK_UP).await;
        let asked = self.talk.fake.requests();
        let (call, _) = left_out(&told(&asked[before])).unwrap();
        let told = told(asked.last().unwrap());
        let since = told.iter().rposition(|told| matches!(told, Told::User(_))).unwrap();
        let pages = told[since..].iter().filter_map(|told| match told {
            Told::Result { text, .. } => Some(text.rsplit_once(MORE).map_or(text.as_str(), |(page, _)| page)),
            _ => None,
        });
        let (pages, original) = (pages.collect::<Vec<_>>(), self.original(&call));
        assert!(pages.len() > 1 && !original.starts_with('['), "it was whole when it was new: {original}");
        assert_eq!(pages.concat(), original);
    }

    /// What a tool returned to a call, as the model was told when it was new.
    fn original(&self, call: &str) -> String {
        let of_call = |told| match told {
            Told::Result { id, text } if id == call => Some(text),
            _ => None,
        };
        self.talk.fake.requests().iter().flat_map(told).find_map(of_call).unwrap()
    }
}

async fn check_long(model: &str) {
    let strict = Strict::new(model).await;
    let (mut has_looked_up, mut longest) = (false, 0);
    for turn in 0..TURNS {
        longest = longest.max(strict.ask_of(turn).await);
        if !has_looked_up && turn >= TURNS / 2 && strict.can_look_up() {
            strict.look_up().await;
            has_looked_up = true;
        }
    }
    assert!(has_looked_up);
    assert_eq!(strict.talk.fake.refusals(), Vec::<String>::new());
    assert_eq!(strict.talk.state(&strict.context).await, "Idle");
    let tokens = strict.tokens().await;
    assert!(tokens >= 10 * LIMIT, "{tokens} tokens are less than ten times {LIMIT}");
    let budget = strict.window().await["budget"].as_u64().unwrap();
    assert!((budget * 4 / 5..=budget).contains(&longest), "it is filled, and not more: {longest} of {budget}");
}

#[tokio::test]
async fn a_conversation_ten_times_the_limit_runs_to_its_end_over_openais_wire() {
    check_long("gpt-4o").await;
}

#[tokio::test]
async fn a_conversation_ten_times_the_limit_runs_to_its_end_over_anthropics_wire() {
    check_long("claude-sonnet-4-5").await;
}
