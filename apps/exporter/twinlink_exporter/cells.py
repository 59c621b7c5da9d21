"""Which cell of a gNB is exported: one alone, as a carrier is described on the command line."""

from dataclasses import replace

from twinlink_e3 import SlotIndication

from twinlink.appkit.journal import Journal

MAX_TOLD = 64  # cells


class OneCell:
    """The cell of one gNB at a time.

    Args:
        cell_id: which; None: the first that it indicates.
        journal: for the event that there are others.
    """

    def __init__(self, cell_id: int | None, journal: Journal) -> None:
        self._cell_id = self._given = cell_id
        self._journal = journal
        self._is_known = False  # our cell has been indicated
        self._told: set[int | None] = set()  # other cells; None: some that have no name

    def begin_anew(self) -> None:
        """Another gNB follows; of the cells that were told, none is told again."""
        self._cell_id, self._is_known = self._given, False

    def choose(self, indication: SlotIndication) -> tuple[SlotIndication, bool]:
        """The indication of our cell, with all the others in ``others``; or as it is, and that our cell is not in it.

        An agent that names no cells has one.
        """
        if indication.cell_id is None and not indication.others:
            return indication, True
        if self._cell_id is None:
            self._cell_id = indication.cell_id
        named = (indication, *indication.others)
        self._is_known = self._is_known or any(one.cell_id == self._cell_id for one in named)
        for one in named:
            if one.cell_id != self._cell_id:
                self._tell(one.cell_id)
        if len(named) == 1 and (indication.n_cells or 1) > 1:
            self._tell(None)
        if indication.cell_id == self._cell_id:
            return indication, True
        for one in indication.others:
            if one.cell_id == self._cell_id:
                rest = tuple(replace(each, others=()) for each in named if each is not one)
                return replace(one, others=rest, names_cells=True), True
        return indication, False

    def _tell(self, cell_id: int | None) -> None:
        """There is another cell, of which nothing is exported."""
        if cell_id in self._told or len(self._told) >= MAX_TOLD:
            return
        self._told.add(cell_id)
        ours = f"cell {self._cell_id}"
        if not self._is_known:
            others = "other cells" if cell_id is None else f"cell {cell_id}"
            text = f"the gNB has {others}, and {ours} is not indicated: nothing is exported until it is; see --cell-id"
        elif cell_id is None:
            text = f"the gNB has other cells, whose rows it does not name: {ours} is exported"
        else:
            text = f"the gNB has cell {cell_id}, too, which is not exported: {ours} is (--cell-id)"
        self._journal.event("other-cells", text, cell_id=cell_id, exported=self._cell_id)
