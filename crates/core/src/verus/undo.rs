//! Undoing cuts for packets that were declared lost and arrive after all. The paper (§5.2) waits three delays before it
//! declares a loss; the default mode waits one, and undoes the cut if that was too short.

/// The state before the last cut, kept until the losses that caused it are certain.
#[derive(Debug)]
pub struct Undo<State> {
    cut: Option<Cut<State>>,
}

#[derive(Debug)]
struct Cut<State> {
    before: State,
    /// Packets declared lost that have not arrived.
    outstanding: usize,
    /// Whether a timeout is among the causes: the first packet that arrives after all disproves it.
    by_timeout: bool,
}

impl<State> Default for Undo<State> {
    fn default() -> Self {
        Undo { cut: None }
    }
}

impl<State> Undo<State> {
    /// Another `packets` packets were declared lost.
    pub fn on_lost(&mut self, packets: usize) {
        if let Some(cut) = &mut self.cut {
            cut.outstanding += packets;
        }
    }

    /// `packets` packets were declared lost, and the window is cut for this.
    pub fn on_cut(&mut self, before: State, packets: usize) {
        self.cut = Some(Cut {
            before,
            outstanding: packets,
            by_timeout: false,
        });
    }

    /// All packets in flight are presumed lost. `before` is the state to return to; `None` if the cut is not to be
    /// undone.
    pub fn on_timeout(&mut self, before: Option<State>, packets: usize) {
        if self.cut.is_none()
            && let Some(before) = before
        {
            self.on_cut(before, 0);
        }
        if let Some(cut) = &mut self.cut {
            cut.outstanding += packets;
            cut.by_timeout = true;
        }
    }

    /// `packets` packets declared lost have arrived. Once all of them have, or the first after a timeout, returns the
    /// state to return to.
    pub fn on_recovered(&mut self, packets: usize) -> Option<State> {
        let cut = self.cut.as_mut()?;
        cut.outstanding = cut.outstanding.saturating_sub(packets);
        if cut.outstanding > 0 && !cut.by_timeout {
            return None;
        }
        self.cut.take().map(|cut| cut.before)
    }
}
