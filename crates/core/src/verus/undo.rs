//! Undoing cuts for losses that were none: a packet declared lost may arrive after all. §5.2 waits three delays before
//! it declares a loss; the default mode waits one, and takes the cut back if that was too short.

/// The state before the last cut, until what was thought lost is known to be.
#[derive(Debug)]
pub struct Undo<State> {
    cut: Option<Cut<State>>,
}

#[derive(Debug)]
struct Cut<State> {
    before: State,
    /// Packets thought lost that have not arrived.
    outstanding: usize,
    /// A timeout is among the causes: it is disproved by the first packet that arrives after all.
    by_timeout: bool,
}

impl<State> Default for Undo<State> {
    fn default() -> Self {
        Undo { cut: None }
    }
}

impl<State> Undo<State> {
    /// So many packets more are thought lost.
    pub fn on_lost(&mut self, packets: usize) {
        if let Some(cut) = &mut self.cut {
            cut.outstanding += packets;
        }
    }

    /// So many packets are thought lost, and the window is cut for it.
    pub fn on_cut(&mut self, before: State, packets: usize) {
        self.cut = Some(Cut {
            before,
            outstanding: packets,
            by_timeout: false,
        });
    }

    /// All packets in flight are thought lost. `before`: the state to return to, `None` if the cut is not to be undone.
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

    /// Packets thought lost have arrived. Once all have, this is the state to return to.
    pub fn on_recovered(&mut self, packets: usize) -> Option<State> {
        let cut = self.cut.as_mut()?;
        cut.outstanding = cut.outstanding.saturating_sub(packets);
        if cut.outstanding > 0 && !cut.by_timeout {
            return None;
        }
        self.cut.take().map(|cut| cut.before)
    }
}
